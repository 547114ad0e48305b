"""The checkpoints of a transformers Trainer and the run's journal are of one mind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.config import AgentEnvConfig
from envs.trainers.checkpoints import STATE, CheckpointedFeed, newest_checkpoint, refuse_temperature


class Stepping(CheckpointedFeed):
    """Each step trains on one more group."""

    without_effect = ("top_p", "top_k", "min_p")

    def step(self, batches: int) -> None:
        self.ledger.trained.add(f"g{len(self.ledger.trained)}")


def written(folder: Path, fed: CheckpointedFeed) -> None:
    """What transformers writes last into a checkpoint, after a step."""
    state = SimpleNamespace(is_world_process_zero=True, stateful_callbacks={"TrainerControl": {}})
    fed.on_step_end(SimpleNamespace(gradient_accumulation_steps=1), state, None)
    folder.mkdir()
    (folder / STATE).write_text(json.dumps({"stateful_callbacks": state.stateful_callbacks}))


@dataclass
class Settings:
    """A trainer's."""

    output_dir: str
    top_p: float = 1.0
    min_p: float | None = None
    learning_rate: float = 1e-6
    temperature: float = 1.0


def fed_of(output_dir: Path) -> CheckpointedFeed:
    async def make_env() -> Any:
        raise NotImplementedError  # it is never begun

    return Stepping(make_env, Settings(str(output_dir)), lambda config: None)


def test_the_newest_checkpoint_that_was_written_to_its_end_counts(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) == (None, {})
    for number in (9, 10):
        written(tmp_path / f"checkpoint-{number}", fed_of(tmp_path / "elsewhere"))
    (tmp_path / "checkpoint-11").mkdir()
    (tmp_path / "checkpoint-12").mkdir()
    (tmp_path / "checkpoint-12" / STATE).write_text('{"stateful')
    assert newest_checkpoint(tmp_path)[0] == str(tmp_path / "checkpoint-10")
    (tmp_path / "checkpoint-12" / STATE).write_text('{"stateful_callbacks": {}}')
    with pytest.raises(ValueError, match="give the trainer this feed among its `callbacks`"):
        newest_checkpoint(tmp_path)


def test_what_a_checkpoint_says_is_gone_on_with(tmp_path: Path) -> None:
    fed = fed_of(tmp_path)
    fed.ledger.trained.add("b")
    fed.version = 3
    written(tmp_path / "checkpoint-3", fed)
    again = fed_of(tmp_path)
    assert (again.version, again.ledger.trained) == (4, {"b", "g1"}), "its weights are handed over after the step"


def test_a_trainer_that_begins_elsewhere_than_the_newest_checkpoint_is_refused_with_the_remedy(tmp_path: Path) -> None:
    def begins(checkpoint: Path | None) -> None:
        state = {} if checkpoint is None else json.loads((checkpoint / STATE).read_text())["stateful_callbacks"]
        fed_of(tmp_path).on_train_begin(None, SimpleNamespace(global_step=3, stateful_callbacks=state), None)

    begins(None)
    places = [tmp_path / name for name in ("checkpoint-3", "checkpoint-12", "elsewhere-12")]
    for number, place in enumerate(places):
        fed = fed_of(tmp_path / "elsewhere")
        fed.version = number
        written(place, fed)
    begins(places[1])
    for place in (None, places[0], places[2]):
        with pytest.raises(ValueError, match=r"begins at step 3, .*checkpoint-12: give train\(\) the `checkpoint`"):
            begins(place)


def test_settings_that_the_environments_stand_in_for_are_refused_by_name(tmp_path: Path) -> None:
    def made(*settings: Any) -> None:
        Stepping(None, Settings(str(tmp_path), *settings), lambda config: None)  # type: ignore[arg-type]

    made(1.0, None, 1e-5)
    with pytest.raises(ValueError, match=r"top_p, min_p of Settings would have no effect: .* \(--env\.…\); leave them"):
        made(0.9, 0.1)


def test_ratios_of_another_temperature_than_that_of_sampling_are_refused(tmp_path: Path) -> None:
    def begin(temperature: float) -> None:
        settings = Settings(str(tmp_path), temperature=temperature)
        refuse_temperature(settings, AgentEnvConfig(temperature=0.7))

    begin(0.7)
    with pytest.raises(
        ValueError, match=r"Settings has temperature 1.0, and --env.temperature is 0.7: .* both the same"
    ):
        begin(1.0)
