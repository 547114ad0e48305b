"""OpenRLHF's own samples, batch and advantages of our rollouts. It wants vLLM, which wants a GPU."""

from types import SimpleNamespace

import pytest
from played import GROUPS, Policy, as_row, close, rollouts, truth

agent = pytest.importorskip("openrlhf.utils.agent", reason="OpenRLHF is not installed")
generator = pytest.importorskip("openrlhf.trainer.ppo_utils.samples_generator", reason="OpenRLHF is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # OpenRLHF's

SIZE = 4


def read(responses):
    """OpenRLHF's rows after its own steps, in the form of `truth`: its values at place n are of token n + 1."""
    import torch
    from openrlhf.trainer.ppo_utils.experience import Experience
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    made = object.__new__(generator.SamplesGenerator)
    found = [made._process_response_into_experience(response, max_len=1024) for response in responses]
    for number, one in enumerate(found):
        one.index, one.kl = [number], torch.zeros_like(one.action_mask, dtype=torch.float32)
    batches = [Experience.concat_experiences(found[n : n + 3], 0) for n in range(0, len(found), 3)]
    maker = object.__new__(RemoteExperienceMaker)
    told = SimpleNamespace(estimator="dr_grpo", gamma=1.0)
    maker.strategy = SimpleNamespace(
        args=SimpleNamespace(
            algo=SimpleNamespace(advantage=told),
            rollout=SimpleNamespace(n_samples_per_prompt=SIZE),
            reward=SimpleNamespace(
                clip_range=None, overlong_buffer_len=None, stop_properly_penalty_coef=None, overlong_penalty_factor=0
            ),
        )
    )
    maker.advantage_estimator, maker.kl_ctl = "dr_grpo", SimpleNamespace(value=0.0)
    rows = []
    for batch in maker.compute_advantages_and_returns(batches):
        columns = (batch.action_mask, batch.rollout_log_probs, batch.advantages)
        for ids, *values in zip(batch.sequences.tolist(), *(column.tolist() for column in columns), strict=True):
            rows.append(as_row(ids, *([0, *column] for column in values)))
    return rows


def test_each_token_has_its_mask_logprob_and_the_rollouts_advantage():
    from envs.trainers.openrlhf import make_response

    single = [one for n in range(GROUPS) for one in rollouts(n) if len(one[0]) == 1]
    single = single[: len(single) // SIZE * SIZE]
    wanted = [row for n in range(0, len(single), SIZE) for row in truth(single[n : n + SIZE])]
    assert read([make_response("p", "t", one) for one in single]) == wanted


class Actor:
    """Plays OpenRLHF's actor around vLLM."""

    def __init__(self, tokenizer):
        self.policy = Policy(tokenizer)

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        assert (sampling_params.temperature, sampling_params.logprobs) == (0.9, 0)
        sampled, logprobs = self.policy.reply(prompt_token_ids)
        known = [{token: SimpleNamespace(logprob=value)} for token, value in zip(sampled, logprobs, strict=True)]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=sampled, logprobs=known, finish_reason="stop")])


async def test_the_executor_makes_a_rollout_with_vllm(smollm2_tokenizer, tokenizer_folder, tmp_path):
    from envs.trainers.openrlhf import AtroposExecutor

    class AgentExecutor(AtroposExecutor):
        environment = "sums:Sums"
        options = (f"--env.run_dir={tmp_path}",)

    asked = SimpleNamespace(temperature=0.9, top_p=1.0, top_k=-1, max_tokens=None, logprobs=1)
    executor, named = AgentExecutor(), SimpleNamespace(name_or_path=tokenizer_folder)
    assert isinstance(executor, agent.AgentExecutorBase)
    actor = Actor(smollm2_tokenizer)
    try:
        answers = [await executor.execute("What is 3 + 3?", "sum-3", asked, 1024, named, actor) for _ in range(SIZE)]
    finally:
        await close(executor._clients)
    assert {one["reward"] for one in answers} <= {0.0, 1.0}
    assert all(len(one["action_ranges"]) == 2 for one in answers), "a call and an answer"
    for one, row in zip(answers, read(answers), strict=True):
        assert [place for place, cell in enumerate(row) if cell[1]] == [
            place for start, end in one["action_ranges"] for place in range(start, end)
        ]
