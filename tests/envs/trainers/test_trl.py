"""TRL's checkpoints and the run's journal are of one mind."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.trainers.named import refuse_weight
from envs.trainers.trl import STATE, Fed, given_reward, newest_checkpoint


def written(folder: Path, state: Any) -> None:
    """What transformers writes last into a checkpoint."""
    folder.mkdir()
    (folder / STATE).write_text(json.dumps({"stateful_callbacks": {"Confirming": state}}))


def fed_of(output_dir: Path) -> Fed:
    async def make_env() -> Any:
        raise NotImplementedError  # it is never begun

    return Fed(make_env, output_dir, refuse_weight)


def test_the_newest_checkpoint_that_was_written_to_its_end_counts(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) == (None, {})
    for number in (9, 10):
        written(tmp_path / f"checkpoint-{number}", fed_of(tmp_path / "elsewhere").callback.state())
    (tmp_path / "checkpoint-11").mkdir()
    (tmp_path / "checkpoint-12").mkdir()
    (tmp_path / "checkpoint-12" / STATE).write_text('{"stateful')
    assert newest_checkpoint(tmp_path)[0] == str(tmp_path / "checkpoint-10")
    (tmp_path / "checkpoint-12" / STATE).write_text('{"stateful_callbacks": {}}')
    with pytest.raises(ValueError, match="give the trainer the `callback`"):
        newest_checkpoint(tmp_path)


def test_what_a_checkpoint_says_is_gone_on_with(tmp_path: Path) -> None:
    fed = fed_of(tmp_path)
    fed.ledger.trained.update(("a", "b"))
    fed.version = 3
    written(tmp_path / "checkpoint-3", fed.callback.state())
    again = fed_of(tmp_path)
    assert (again.version, again.ledger.trained) == (3, {"a", "b"})


def test_a_trainer_that_begins_elsewhere_than_the_newest_checkpoint_is_refused_with_the_remedy(tmp_path: Path) -> None:
    def begins(step: int) -> None:
        fed_of(tmp_path).callback.on_train_begin(None, SimpleNamespace(global_step=step), None)

    begins(0)
    for number in (3, 12):
        written(tmp_path / f"checkpoint-{number}", fed_of(tmp_path / "elsewhere").callback.state())
    begins(12)
    for step in (0, 3):
        with pytest.raises(ValueError, match=rf"begins at step {step}, .*checkpoint-12: give train\(\) resume_from"):
            begins(step)


def test_ratios_of_another_temperature_than_that_of_sampling_are_refused(tmp_path: Path) -> None:
    fed: Any = fed_of(tmp_path)
    fed.thread.fed = SimpleNamespace(run=SimpleNamespace(config=SimpleNamespace(temperature=0.7)))
    told = SimpleNamespace(is_world_process_zero=True)
    fed.callback.on_step_begin(SimpleNamespace(temperature=0.7), told, None)
    with pytest.raises(ValueError, match=r"TRL's temperature is 1.0, and --env.temperature is 0.7: .* both the same"):
        fed.callback.on_step_begin(SimpleNamespace(temperature=1.0), told, None)


def test_the_rewards_are_those_that_were_given() -> None:
    assert given_reward(completions=["x", "y"], reward=[0.5, 1.0]) == [0.5, 1.0]
    assert given_reward(completions=["x", "y"]) == [0.0, 0.0], "the async trainer never asks"
