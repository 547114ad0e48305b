"""The smallest policy: its tasks, and a model that is made once."""

from __future__ import annotations

import pytest

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from envs.lab import smoke


def test_the_tasks_to_evaluate_on_are_others_than_those_to_train_on() -> None:
    train, held_out = smoke.tasks()
    assert (len(train), len(held_out)) == (12, 6)
    assert not {task.instruction for task in train} & {task.instruction for task in held_out}
    assert {task.command for task in (*train, *held_out)} == {"touch ready"}


@pytest.mark.engine
def test_the_model_is_made_once() -> None:
    folder = smoke.model(DEFAULT_CACHE)
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert smoke.model(DEFAULT_CACHE) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
