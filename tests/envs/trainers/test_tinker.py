"""Our rows as tinker's own data, and the loop of docs/trainers.md: tinker's service is played."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from row_samples import rollout, score
from sums import Sums, half_right

from atropos_agent.engines.objects import ObjectServer
from atropos_agent.tokens.template import ChatTemplate
from envs.config import AgentEnvConfig
from envs.delivery.exports import tinker_rows
from envs.options import EngineConfig

tinker = pytest.importorskip("tinker")
PAGE = Path(__file__).parents[3] / "docs/trainers.md"
TAKEN = {"target_tokens", "logprobs", "advantages"}
"""What tinker's importance_sampling takes."""


class Training:
    """Plays a training client and its sampling clients, whose replies a policy makes."""

    def __init__(self, template):
        self.template = template
        self.steps, self.data = 0, []

    async def forward_backward(self, data, loss_fn):
        assert loss_fn == "importance_sampling"
        assert all(isinstance(one, tinker.Datum) and set(one.loss_fn_inputs) == TAKEN for one in data)
        self.data.append(data)

    async def optim_step(self, optim_params):
        assert isinstance(optim_params, tinker.AdamParams)
        self.steps += 1

    async def save_weights_and_get_sampling_client(self):
        return self

    async def sample(self, prompt, num_samples, sampling_params):
        assert isinstance(sampling_params, tinker.SamplingParams)
        text = half_right(self.template.decode(prompt.to_ints()))
        ids = [*self.template.encode(text, continues=True), self.template.close_id]
        one = SimpleNamespace(tokens=ids, logprobs=[-0.5] * len(ids), stop_reason="stop")
        return SimpleNamespace(sequences=[one])


async def test_the_loop_on_the_page_trains(smollm2_tokenizer, tokenizer_folder, tmp_path):
    section = PAGE.read_text().partition("### tinker")[2].partition("\n### ")[0]
    page = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.S):
        exec(code, page)
    training = Training(ChatTemplate(smollm2_tokenizer))
    sampling = page["Sampling"](training)
    served = staticmethod(lambda config, reasoning_config=None: ObjectServer(sampling, config))
    config = AgentEnvConfig(tokenizer_name=tokenizer_folder, run_dir=tmp_path / "run")
    env = type("Mine", (Sums,), {"server_cls": served})(config, [EngineConfig(model_name="m")])
    await page["train"](env, sampling, training, steps=2, groups=2, size=4)
    assert training.steps == sampling.version == 2
    for data in training.data:
        assert len(data) == 8
        assert all(one.model_input.length == len(one.loss_fn_inputs["advantages"].data) for one in data)


def test_the_cookbook_compares_logprobs_of_our_sampled_tokens_alone():
    metrics = pytest.importorskip("tinker_cookbook.rl.metrics", reason="tinker-cookbook is not installed")
    lines = list(tinker_rows(score([rollout(1.0, 2, "a"), rollout(0.0, 1, "b")]).rows))
    data = [
        tinker.Datum(
            model_input=tinker.ModelInput.model_validate(line["model_input"]),
            loss_fn_inputs={name: tinker.TensorData(**told) for name, told in line["loss_fn_inputs"].items()},
        )
        for line in lines
    ]
    trainers = []
    for one in data:
        sampled = one.loss_fn_inputs["mask"].to_torch() > 0
        trainers.append((one.loss_fn_inputs["logprobs"].to_torch() - 0.25).where(sampled, -99.0))
    found = metrics.compute_kl_sample_train(data, trainers)
    assert found["optim/kl_sample_train_v1"] == pytest.approx(0.25)
    assert found["optim/entropy"] == pytest.approx(0.5), "the mean of all sampled tokens, each with logprob -0.5"
