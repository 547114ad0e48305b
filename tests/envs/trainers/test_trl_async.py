"""TRL's AsyncGRPOTrainer: our half of its protocol, without it."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Sequence
from dataclasses import fields, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from row_samples import rollout, score
from sums import right
from trl_on_cpu import shift_masks

from atropos_agent.engines.completions import CompletionsServer
from envs.running.feed import RunEnded
from envs.running.group import group_outcomes
from envs.running.sinks import TrainerGroup
from envs.trainers.checkpoints import STATE
from envs.trainers.trl_async import Worker


@pytest.fixture
def policy() -> Callable[[str], str]:
    return right


def given(*rollouts: Any, name: str = "g0") -> TrainerGroup:
    return TrainerGroup(score(rollouts), {one.id: one for one in rollouts}, name)


def take(worker: Worker, rows: int) -> list[Any]:
    """What the trainer's dataset does."""
    return [worker.rollout_buffer.get(timeout=60) for _ in range(rows)]


def pack(samples: Sequence[Any]) -> None:
    """What the trainer's collator does with a batch."""
    dict.fromkeys(key for sample in samples for key in sample.metrics)


def step(worker: Worker, accumulated: int = 1) -> dict[str, Any]:
    """What transformers does at the end of a step. Returns our part of its state."""
    told = SimpleNamespace(is_world_process_zero=True, stateful_callbacks={})
    worker.on_step_end(SimpleNamespace(gradient_accumulation_steps=accumulated), told, None)
    return told.stateful_callbacks


def save(state: dict[str, Any], output_dir: Path, number: int) -> None:
    """What transformers writes last into a checkpoint."""
    folder = output_dir / f"checkpoint-{number}"
    folder.mkdir(parents=True)
    (folder / STATE).write_text(json.dumps({"stateful_callbacks": state}))


SETTINGS = [("max_steps", int, 5), ("num_generations", int, 8), ("temperature", float, 1.0)]


def args_of(output_dir: Path, **settings: Any) -> Any:
    """Return what the worker reads of TRL's settings."""
    return make_dataclass("AsyncGRPOConfig", [("output_dir", str), *SETTINGS])(str(output_dir), **settings)


def worker_of(make_env: Any, output_dir: Path, **options: Any) -> Worker:
    async def made() -> Any:
        return make_env(group_size=2, equal_rewards="send")

    return Worker(made, args_of(output_dir), **options)


def test_a_row_with_several_advantages_is_given_once_for_each_with_those_tokens_alone_to_train(tmp_path: Path) -> None:
    worker = worker_of(None, tmp_path)
    worker.hand(given(rollout(1.0, 2, "a", turn_advantages=[0.5, 0.0]), rollout(0.0, 1, "b")))
    samples = take(worker, worker.rollout_buffer.qsize())
    assert [round(sample.advantage, 3) for sample in samples] == [1.5, 1.0, -1.0]
    for sample in samples:
        assert len(sample.input_ids) == len(sample.completion_mask) == len(sample.old_log_probs)
        assert sample.old_log_probs.dtype == np.float32
        assert (sample.old_log_probs[sample.completion_mask == 0] == 0).all()
    worker = worker_of(None, tmp_path)
    two = rollout(1.0, 1, "a")
    halves = score([two, rollout(0.0, 1, "b")])
    (row, other) = halves.rows
    turn = row.turns[0]
    parts = [type(turn)(turn.start, 1, 0, advantage=0.25), type(turn)(turn.start + 1, 1, 1, advantage=-0.25)]
    split = [*(type(row)(**{field.name: getattr(row, field.name) for field in fields(row)} | {"turns": parts}),), other]
    group = TrainerGroup(type(halves)(halves.origin, split), {"a": two, "b": rollout(0.0, 1, "b")}, "g0")
    worker.hand(group)
    first, second, _ = take(worker, 3)
    assert (first.input_ids == second.input_ids).all()
    assert [first.completion_mask.tolist(), second.completion_mask.tolist()] == [[0, 1, 0], [0, 0, 1]]
    assert (first.advantage, second.advantage) == (1.25, 0.75)


def test_shifted_masks_are_those_of_the_tokens_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a whole training with wrong masks is made with (test_with_trl.py)."""
    rows = given(rollout(1.0, 1, "a"), rollout(0.0, 1, "b"))
    monkeypatch.setattr(Worker, "_make_sample", Worker._make_sample)  # put back at the end
    right_one, spoilt = worker_of(None, tmp_path), worker_of(None, tmp_path)
    right_one.hand(rows)
    shift_masks()
    spoilt.hand(rows)
    (first, _), (shifted, _) = take(right_one, 2), take(spoilt, 2)
    for name in ("completion_mask", "old_log_probs"):
        assert getattr(shifted, name).tolist() == [0, *getattr(first, name).tolist()[:-1]]


def test_groups_of_one_rollout_which_no_trainer_would_get_are_refused(make_env: Any, tmp_path: Path) -> None:
    async def made() -> Any:
        return make_env(group_size=1)

    with pytest.raises(ValueError, match=r"--env.group_size 1: .* no group would reach the trainer; give 2 or more"):
        Worker(made, args_of(tmp_path / "out")).start()


def test_nothing_is_kept_of_rows_that_the_trainer_dropped(tmp_path: Path) -> None:
    worker = worker_of(None, tmp_path)
    worker.hand(given(rollout(1.0, 1, "a"), rollout(0.0, 1, "b")))
    _, newer = take(worker, 2)
    pack([newer])
    step(worker)
    assert worker.last_step == [("g0", 1, "b", 0.0)]
    assert not worker.ledger._got and not worker.ledger._partly


def test_the_trainer_is_fed_and_its_checkpoint_says_what_is_not_given_again(make_env: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    worker = worker_of(make_env, out, groups=3)
    assert worker.checkpoint is None
    worker.start()
    worker.update_model_version(1)
    samples = take(worker, 3)
    pack(samples)
    samples += take(worker, 2)
    pack(samples[3:])  # it packs a batch ahead
    assert {sample.model_version for sample in samples} == {1}, "TRL counts from 1, and rows of version 0 are its first"
    saved = step(worker)
    worker.update_model_version(2)
    save(saved, out, 1)
    worker.on_save(None, SimpleNamespace(is_world_process_zero=True), None)
    step(worker)  # and here the process is killed: this step is lost
    worker.stop()
    names = list(dict.fromkeys(sample.metrics.handed.group for sample in samples))
    assert [outcome.state for outcome in group_outcomes(tmp_path / "run", ["taken"])] == ["taken", "taken"]
    assert [outcome.state for outcome in group_outcomes(tmp_path / "run", ["confirmed"])] == ["confirmed"]

    again = worker_of(make_env, out, groups=3)
    assert (again.checkpoint, again.version) == (str(out / "checkpoint-1"), 1)
    again.start()
    again.update_model_version(1)
    left = take(again, 3)
    # Groups come again in the order of their numbers, at first as they were made.
    again_given = {sample.metrics.handed[:2] for sample in left}
    assert again_given == {(names[1], 1), (names[2], 0), (names[2], 1)}
    assert {sample.model_version for sample in left} == {0}, (
        "sampled a step before the weights that are TRL's first now"
    )
    again.stop()
    with pytest.raises(RunEnded):
        again.check_health(300.0)


def test_no_more_groups_are_made_than_the_worker_may_have(make_env: Any, tmp_path: Path) -> None:
    worker = worker_of(make_env, tmp_path / "out", groups=2)
    worker.start()
    samples = take(worker, 2)
    with pytest.raises(queue.Empty):
        while len(samples) < 9:
            samples.append(worker.rollout_buffer.get(timeout=3))
            if len(samples) == 5:
                raise queue.Empty
    worker.check_health(300.0)
    assert worker.ledger.waiting <= 2
    worker.stop()
    assert len(list(group_outcomes(tmp_path / "run"))) <= 5


def test_a_checkpoints_weights_are_of_the_next_version_whether_they_are_handed_over_or_not(tmp_path: Path) -> None:
    worker = worker_of(None, tmp_path)
    worker.update_model_version(1)
    for number, (handed_over, version) in enumerate(((True, 1), (False, 2), (True, 2))):
        worker.hand(given(rollout(1.0), name=f"g{number}"))
        pack(take(worker, worker.rollout_buffer.qsize()))
        saved = step(worker)["Confirming"]["attributes"]
        if handed_over:
            worker.update_model_version(worker.version + 2)
        assert saved["version"] == version


def test_without_max_steps_trl_would_count_the_prompts_that_no_row_is_of(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give max_steps: the run draws its own tasks"):
        Worker(None, args_of(tmp_path, max_steps=-1))  # type: ignore[arg-type]


def test_settings_without_effect_and_another_temperature_are_refused(make_env: Any, tmp_path: Path) -> None:
    async def made() -> Any:
        return make_env(group_size=2)

    with pytest.raises(ValueError, match="num_generations of AsyncGRPOConfig would have no effect"):
        Worker(made, args_of(tmp_path, num_generations=4))
    with pytest.raises(ValueError, match=r"has temperature 0.7, and --env.temperature is 1.0"):
        Worker(made, args_of(tmp_path, temperature=0.7)).start()


def test_an_adapter_under_names_of_trls_is_refused_since_rollouts_would_be_of_the_base_model(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def greet(*_: Any) -> Any:
        return SimpleNamespace(json=lambda: {"data": [{"id": "base"}, {"id": "trl-policy-v1"}]})

    monkeypatch.setattr(CompletionsServer, "probe", greet)
    worker = worker_of(make_env, tmp_path / "out")
    worker.start()
    worker.stop()
    worker = worker_of(make_env, tmp_path / "out")
    told = SimpleNamespace(global_step=0, stateful_callbacks={})
    worker.on_train_begin(None, told, None, model=SimpleNamespace(peft_config={}))
    with pytest.raises(ValueError, match=r"serves the adapter in training as trl-policy-v1, .* without --enable-lora"):
        worker.start()
    worker.stop()


def test_trls_own_row_has_no_other_fields(tmp_path: Path) -> None:
    theirs = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker", reason="trl is not installed")
    worker = worker_of(None, tmp_path)
    worker.hand(given(rollout(1.0, 1, "a"), rollout(0.0, 1, "b")))
    assert {field.name for field in fields(theirs.RolloutSample)} <= vars(worker.rollout_buffer.get()).keys()
