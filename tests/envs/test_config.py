"""Options of every environment."""

import pytest
from atroposlib.envs.base import BaseEnvConfig
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from pydantic import ValidationError

from envs.config import AgentEnvConfig
from envs.options import EngineConfig


def config(**options):
    return AgentEnvConfig(tokenizer_name="x", **options)


def test_options_of_atroposlib_that_have_no_effect_are_refused():
    with pytest.raises(ValidationError, match="worker_timeout has no effect"):
        config(worker_timeout=1)
    assert config(worker_timeout=600).thinking_mode is False, "which atroposlib reads"


def test_every_option_of_atroposlib_is_followed_or_refused():
    for theirs, ours in [(BaseEnvConfig, AgentEnvConfig), (APIServerConfig, EngineConfig)]:
        assert theirs.model_fields.keys() - ours.model_fields.keys() == ours.unused.keys()
        for name, default in ours.unused.items():
            known = theirs.model_fields[name].default
            assert default == getattr(known, "value", known)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_reply_tokens": 8192, "max_token_length": 8192}, "must be smaller than max_token_length"),
        ({"inference_weight": 0.0}, "inference_weight\\s+Input should be greater than 0"),
        ({"eval_ks": [1, 8], "eval_samples": 4}, "eval_ks needs eval_samples >= 8"),
        ({"no_such_option": 1}, "Extra inputs"),
        ({"group_size": 100_000}, "group_size\\s+Input should be less than or equal to 10000"),
        ({"teacher_model": "m", "teacher_weight": 1.0}, "teacher_weight has no effect without teacher;"),
        ({"ray": {"workers": 2}}, "ray has no effect without workers ray; set that too"),
        ({"teacher": "http://t/v1", "teacher_weight": 1.0, "temperature": 0.7}, "set temperature to 1"),
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
