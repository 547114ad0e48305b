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


class VLLM:
    """Plays vLLM's engine in OpenRLHF's actor."""

    def __init__(self, tokenizer):
        self.policy = Policy(tokenizer)

    async def generate(self, prompt, sampling_params, request_id):
        assert (sampling_params.temperature, sampling_params.logprobs) == (0.9, 0)
        sampled, logprobs = self.policy.reply(prompt["prompt_token_ids"])
        known = [{token: SimpleNamespace(logprob=value)} for token, value in zip(sampled, logprobs, strict=True)]
        yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=sampled, logprobs=known, finish_reason="stop")])


async def test_openrlhfs_actor_makes_the_rollouts_of_its_data_set(
    smollm2_tokenizer, tokenizer_folder, tmp_path, monkeypatch
):
    """It loads the file of `--train.agent_func_path`, and its prompts name the tasks by their labels."""
    engine = pytest.importorskip("openrlhf.trainer.ray.vllm_engine", reason="OpenRLHF is not installed")
    from openrlhf.datasets.prompts_dataset import PromptDataset

    monkeypatch.setattr(engine, "TokensPrompt", dict)
    (tmp_path / "agent.py").write_text(
        "from envs.trainers.openrlhf import AtroposExecutor\n\n\n"
        "class AgentExecutor(AtroposExecutor):\n"
        '    environment = "sums:Sums"\n'
        f'    options = ("--env.run_dir={tmp_path}",)\n'
    )
    keys = SimpleNamespace(input_key="input", label_key="task")
    strategy = SimpleNamespace(args=SimpleNamespace(data=keys), is_rank_0=lambda: False)
    tasks = [{"input": "unused", "task": f"sum-{n}"} for n in (3, 4)]
    prompts = PromptDataset(tasks, smollm2_tokenizer, strategy)
    actor = object.__new__(engine.RolloutRayActor.__ray_metadata__.modified_class)
    actor.executor, actor.llm = engine._load_agent_executor(str(tmp_path / "agent.py")), VLLM(smollm2_tokenizer)
    asked = SimpleNamespace(temperature=0.9, top_p=1.0, top_k=-1, max_tokens=None, logprobs=1)
    named, answers = SimpleNamespace(name_or_path=tokenizer_folder), []
    try:
        for place in range(len(prompts)):
            _, prompt, label, _ = prompts[place]
            answers += await actor.generate_responses(prompt, label, asked, 1024, named, SIZE)
    finally:
        await close(actor.executor._clients)
    assert {one["reward"] for one in answers} <= {0.0, 1.0}
    assert all(len(one["action_ranges"]) == 2 for one in answers), "a call and an answer"
    rows = read(answers)
    assert len(rows) == 2 * SIZE
    assert all(actor.llm.policy.sampled(row) for row in rows)


async def test_a_prompt_without_a_label_is_refused():
    from envs.trainers.openrlhf import AtroposExecutor

    with pytest.raises(ValueError, match=r"has '' as its label \(--data\.label_key\): give the id"):
        await AtroposExecutor().execute("p", "", None, 1024, None, None)
