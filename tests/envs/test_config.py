"""Options of every environment."""

import pytest
from pydantic import ValidationError

from envs.config import UNUSED, AgentEnvConfig


def config(**options):
    return AgentEnvConfig(tokenizer_name="x", **options)


def test_options_of_atroposlib_that_have_no_effect_are_refused():
    with pytest.raises(ValidationError, match="worker_timeout has no effect"):
        config(worker_timeout=1)
    assert all(name in AgentEnvConfig.model_fields for name in UNUSED)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_reply_tokens": 8192, "max_token_length": 8192}, "must be smaller than max_token_length"),
        ({"inference_weight": 0.0}, "inference_weight must be positive"),
        ({"eval_ks": [1, 8], "eval_samples": 4}, "eval_ks needs eval_samples >= 8"),
        ({"no_such_option": 1}, "Extra inputs"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, said):
    with pytest.raises(ValidationError, match=said):
        config(**options)


def test_the_agents_part_differs_in_evaluations():
    options = config(temperature=0.7, eval_temperature=0.1, rollout_timeout_s=60.0)
    training = options.agent_config(max_total_tokens=100, working_dir="/app")
    assert (training.temperature, training.max_total_tokens, training.working_dir) == (0.7, 100, "/app")
    assert options.agent_config(max_total_tokens=100, evaluating=True).temperature == 0.1
