"""Our rollouts as slime's samples; with its own types and batch if its sources are on PYTHONPATH: it is on no index."""

import enum
import json
from dataclasses import dataclass, field
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from played import GROUPS, Policy, as_row, close, rollouts, serve_sglang, truth

from atropos_agent.engines.completions import Answer
from atropos_agent.engines.protocols import SGLangServer
from envs.trainers import slime
from envs.types import Failure, InfraError

try:
    from slime.utils.types import Sample
except ImportError:

    @dataclass
    class Sample:
        """The part of slime's that we fill."""

        group_index: int | None = None
        index: int | None = None
        rollout_id: int | None = None
        tokens: list[int] = field(default_factory=list)
        response_length: int = 0
        reward: Any = None
        loss_mask: list[int] | None = None
        weight_versions: list[str] = field(default_factory=list)
        rollout_log_probs: list[float] | None = None
        remove_sample: bool = False
        status: Any = None
        metadata: dict[str, Any] = field(default_factory=dict)
        Status = enum.Enum("Status", ["COMPLETED", "TRUNCATED"])

        def get_reward_value(self, args):
            return self.reward


ARGS = SimpleNamespace(
    advantage_estimator="grpo",
    grpo_std_normalization=False,
    reward_key=None,
    use_dynamic_global_batch_size=False,
    rollout_top_p=1.0,
    sglang_router_ip="localhost",
    sglang_router_port=1,
    atropos_environment="sums:Sums",
    atropos_options=[],
    hf_checkpoint="m",
)


def groups(sample=Sample):
    """Groups of which several rollouts have a row, and slime's samples of each rollout."""
    numbers = [n for n in range(GROUPS) if sum(bool(rows) for rows, _ in rollouts(n)) > 1]
    found = [rollouts(n) for n in numbers]
    samples = [
        [slime.make_samples(sample(group_index=g, index=100 * g + n), one) for n, one in enumerate(group)]
        for g, group in enumerate(found)
    ]
    return found, samples


def rows_of(tokens, lengths, masks, logprobs, worth):
    """Rows in the form of `truth`: slime's masks and logprobs are of the response."""
    columns = zip(tokens, lengths, masks, logprobs, worth, strict=True)
    return [
        row
        for ids, length, mask, known, value in columns
        if (
            row := as_row(
                ids, *([0] * (len(ids) - length) + list(column) for column in (mask, known, [value] * length))
            )
        )
    ]


def test_each_token_has_its_mask_logprob_and_the_rollouts_advantage():
    found, samples = groups()
    flat = list(chain.from_iterable(chain.from_iterable(samples)))
    _, worth = slime.group_rewards(ARGS, flat)
    columns = (
        [getattr(one, name) for one in flat] for name in ("tokens", "response_length", "loss_mask", "rollout_log_probs")
    )
    assert rows_of(*columns, worth) == [row for group in found for row in truth(group)]
    assert any(one.remove_sample for one in flat)


def test_slimes_batch_has_them_and_counts_a_rollout_once():
    manager = pytest.importorskip("slime.ray.rollout", reason="slime is not installed")
    found, samples = groups()
    manager.validate_rollout_id_annotated(samples)
    flat = list(chain.from_iterable(chain.from_iterable(samples)))
    inner = manager.RolloutManager.__ray_metadata__.modified_class
    mine = object.__new__(inner)
    mine.args, mine.custom_reward_post_process_func = ARGS, slime.group_rewards
    mine.custom_convert_samples_to_train_data_func = None
    batch = mine._convert_samples_to_train_data(flat)
    columns = (batch[name] for name in ("tokens", "response_lengths", "loss_masks", "rollout_log_probs", "rewards"))
    assert rows_of(*columns) == [row for group in found for row in truth(group)]
    weights = {}
    names = ("rollout_ids", "loss_masks", "rollout_mask_sums", "rewards")
    for rollout_id, mask, total, value in zip(*(batch[name] for name in names), strict=True):
        weights[rollout_id] = weights.get(rollout_id, 0.0) + value * sum(mask) / max(total, 1)
    rewards = [rows[0].score if rows else None for group in found for rows, _ in group]
    assert len(weights) == len(rewards), "slime's loss is a mean over these"


def test_miles_which_began_as_slime_takes_the_same_functions():
    data = pytest.importorskip("miles.ray.rollout.train_data_conversion", reason="Miles is not installed")
    from miles.rollout.inference_rollout.compatibility import LegacyGenerateFnAdapter, load_generate_function

    assert isinstance(load_generate_function("envs.trainers.slime.generate"), LegacyGenerateFnAdapter)
    found, samples = groups(data.Sample)
    flat = list(chain.from_iterable(chain.from_iterable(samples)))
    batch = data.convert_samples_to_train_data(ARGS, flat, {}, None, slime.group_rewards)
    columns = (batch[name] for name in ("tokens", "response_lengths", "loss_masks", "rollout_log_probs", "rewards"))
    assert rows_of(*columns) == [row for group in found for row in truth(group)]
    assert len(set(batch["rollout_ids"])) == sum(len(group) for group in found)


class Settings(SimpleNamespace):
    """slime's settings; those that a test does not give are None."""

    def __getattr__(self, name):
        return None


def test_slimes_rollout_manager_makes_a_batch_of_a_step(
    smollm2_tokenizer, tokenizer_folder, tmp_path, httpserver, monkeypatch
):
    """Its data source, its rollout in a thread of its own, and its split into two ranks."""
    manager = pytest.importorskip("slime.ray.rollout", reason="slime is not installed")
    from slime.rollout.data_source import RolloutDataSource
    from slime.rollout.sglang_rollout import generate_rollout
    from slime.utils.async_utils import run

    policy, prompts = Policy(smollm2_tokenizer), tmp_path / "prompts.jsonl"
    serve_sglang(httpserver, policy)
    tasks = [f"sum-{n}" for n in (3, 4, 5)]
    prompts.write_text("".join(json.dumps({"prompt": "unused", "metadata": {"task": task}}) + "\n" for task in tasks))
    given = {"sglang_router_ip": httpserver.host, "sglang_router_port": httpserver.port, "sglang_server_concurrency": 8}
    given |= {"hf_checkpoint": tokenizer_folder, "atropos_options": [f"--env.run_dir={tmp_path}"]}
    given |= {"prompt_data": str(prompts), "input_key": "prompt", "metadata_key": "metadata", "rollout_seed": 0}
    given |= {"rollout_global_dataset": True, "rollout_batch_size": 2, "over_sampling_batch_size": 2}
    given |= {"n_samples_per_prompt": 4, "global_batch_size": 8, "micro_batch_size": 1, "rollout_num_engines": 1}
    given |= {"rollout_temperature": 0.9, "rollout_top_k": -1, "rollout_max_response_len": 50}
    given |= {"custom_generate_function_path": "envs.trainers.slime.generate", "rollout_data_transport": "object-store"}
    args = Settings(**vars(ARGS) | given)
    manager.init_http_client(args)
    monkeypatch.setattr(manager.ray, "put", lambda data: data)  # no cluster is there
    mine = object.__new__(manager.RolloutManager.__ray_metadata__.modified_class)
    mine.args, mine.data_source, mine.generate_rollout = args, RolloutDataSource(args), generate_rollout
    mine.custom_reward_post_process_func = slime.group_rewards
    mine.custom_convert_samples_to_train_data_func, mine._health_monitors = None, []
    mine.set_train_parallel_config({"dp_size": 2, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1})
    try:
        ranks = [box.inner for box in mine.generate(0)]
    finally:
        run(close(slime._CLIENTS))
        slime._CLIENTS._runs.clear()
    rows, rewards = [], []
    for rank in ranks:
        columns = ([one.tolist() for one in rank[name]] for name in ("tokens", "loss_masks", "rollout_log_probs"))
        tokens, masks, logprobs = columns
        lengths = [len(mask) for mask in masks]
        rows += rows_of(tokens, lengths, masks, logprobs, rank["rewards"])
        rewards += [(place // 4, worth) for place, worth in zip(rank["partition"], rank["rewards"], strict=True)]
    assert len(rows) == 8
    assert all(policy.sampled(row) for row in rows)
    for group in (0, 1):
        assert sum(worth for number, worth in rewards if number == group) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "sampling", "message"),
    [
        ({"partial_rollout": True}, {}, "leave out --partial-rollout: "),
        (
            {"dynamic_sampling_filter_path": "slime.rollout.x.y"},
            {},
            r"--dynamic-sampling-filter-path slime\.rollout\.x",
        ),
        ({}, {"custom_params": {"return_top_p_token_ids": True}}, "leave out --rollout-top-p: "),
    ],
)
async def test_settings_with_which_slime_would_end_in_an_error_are_refused(settings, sampling, message):
    args = SimpleNamespace(**vars(ARGS) | settings)
    with pytest.raises(ValueError, match=message):
        await slime.generate(args, Sample(metadata={"task": "sum-3"}), {"temperature": 1.0, **sampling})


async def test_a_prompt_without_a_task_is_refused():
    with pytest.raises(ValueError, match=r'has None as its metadata\["task"\]: give the id'):
        await slime.generate(ARGS, Sample(), {"temperature": 1.0})


def test_standard_deviations_are_over_rollouts():
    one, other = Sample(group_index=0, rollout_id=1, reward=1.0), Sample(group_index=0, rollout_id=2, reward=0.0)
    args = SimpleNamespace(**vars(ARGS) | {"grpo_std_normalization": True})
    _, worth = slime.group_rewards(args, [one, one, one, other])
    assert worth == pytest.approx([0.5**0.5] * 3 + [-(0.5**0.5)], abs=1e-5)


async def test_a_rollout_that_has_failed_is_not_trained_on(monkeypatch):
    async def failing(*_, **__):
        raise InfraError(Failure.TOKENS, "the daemon is away")

    monkeypatch.setattr(slime._CLIENTS, "rollout", failing)
    (sample,) = await slime.generate(ARGS, Sample(index=7, metadata={"task": "sum-3"}), {"temperature": 1.0})
    assert (sample.remove_sample, sample.loss_mask, sample.rollout_id) == (True, [0], 7)


async def test_slimes_router_samples_as_sglang(smollm2_tokenizer, tokenizer_folder, tmp_path, monkeypatch):
    asked, policy = [], Policy(smollm2_tokenizer)

    async def answer(self, **body):
        asked.append((self.config.base_url, body["temperature"], body["max_tokens"]))
        ids, logprobs = policy.reply(body["input_ids"])
        made = Answer((body["input_ids"], [ids], [logprobs], ["stop"]))
        made.versions, made.experts = [5], [None]
        return made

    monkeypatch.setattr(SGLangServer, "_tokens_and_logprobs_completion_wrapper", answer)
    given = {"temperature": 0.9, "top_p": 1.0, "top_k": -1, "max_new_tokens": 50, "stop": None, "no_stop_trim": True}
    args = SimpleNamespace(**vars(ARGS) | {"hf_checkpoint": tokenizer_folder})
    args.atropos_options = [f"--env.run_dir={tmp_path}"]
    try:
        (sample,) = await slime.generate(args, Sample(index=7, metadata={"task": "sum-3"}), given)
    finally:
        await close(slime._CLIENTS)
        slime._CLIENTS._runs.clear()
    assert set(asked) == {("http://localhost:1", 0.9, 50)}
    assert len(asked) == 2, "a call and an answer"
    assert sample.loss_mask == [int(value == -0.5) for value in sample.rollout_log_probs]
    assert (sample.rollout_id, sample.weight_versions, sample.status.name) == (7, ["5"], "COMPLETED")
