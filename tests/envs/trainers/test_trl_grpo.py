"""TRL's GRPOTrainer: the rollout function that we give it, without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from row_samples import rollout, score
from sums import right

from atropos_agent.types import AgentResult
from envs.running.group import group_outcomes
from envs.running.sinks import TrainerGroup
from envs.trainers.trl_grpo import RolloutFunction, given_reward, one_row_each


@pytest.fixture
def policy() -> Callable[[str], str]:
    return right


class Pushed:
    """What weights were handed over."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def load(self, version: int, save: Any) -> None:
        self.versions.append(version)


def trainer_at(step: int, *, training: bool = True) -> Any:
    net = SimpleNamespace(save_pretrained=lambda folder: None, training=training)
    return SimpleNamespace(
        state=SimpleNamespace(global_step=step, is_world_process_zero=True, stateful_callbacks={}),
        num_generations=2,
        num_generations_eval=1,
        accelerator=SimpleNamespace(unwrap_model=lambda model: model),
        model=net,
    )


def args_of(folder: Path, **settings: Any) -> Any:
    """Return what the function reads of TRL's settings."""
    fields = [("output_dir", str), ("temperature", float, 1.0), ("top_k", int, 0)]
    return make_dataclass("GRPOConfig", fields)(str(folder / "out"), **settings)


def given(*rollouts: Any) -> TrainerGroup:
    return TrainerGroup(score(rollouts), {one.id: one for one in rollouts}, "g0")


def test_each_prompt_gets_the_rows_of_its_task_after_weights_were_handed_over(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def made() -> Any:
        return make_env(equal_rewards="send")

    with RolloutFunction(made, args_of(tmp_path), "http://127.0.0.1:9", tmp_path) as function:
        pushed = Pushed()
        monkeypatch.setattr(function._weights, "load", pushed.load)
        prompts = ["sum-2", "sum-2", "sum-1", "sum-1"]
        rows = function(prompts, trainer_at(0))
        assert rows["task_id"] == prompts
        assert rows["reward"] == given_reward(completions=prompts, **rows) == [1.0] * 4
        for ids, logprobs, mask in zip(rows["completion_ids"], rows["logprobs"], rows["env_mask"], strict=True):
            assert len(ids) == len(logprobs) == len(mask)
        more = function(["sum-3", "sum-3"], trainer_at(0))
        assert not {*more["rollout_id"]} & {*rows["rollout_id"]}
        assert pushed.versions == [0], "in one step the weights stay what they are"
        checked = function(["sum-2", "sum-1"], trainer_at(0, training=False))
        assert checked["task_id"] == ["sum-2", "sum-1"], "one attempt each"
        told = trainer_at(1).state
        function.on_step_end(SimpleNamespace(gradient_accumulation_steps=1), told, None)
        function.on_save(None, told, None)
        assert function.ledger.trained == {"step-0/0/2/sum-2", "step-0/1/2/sum-1", "step-0/2/2/sum-3"}, (
            "evaluations are not trained on"
        )
        for _ in range(2):
            function(["sum-2"], trainer_at(1, training=False))
        function(["sum-3", "sum-3"], trainer_at(1))
        assert pushed.versions == [0, 1]
    assert [outcome.state for outcome in group_outcomes(tmp_path / "run")] == ["confirmed"] * 7 + ["taken"]
    with RolloutFunction(made, args_of(tmp_path), "http://127.0.0.1:9", tmp_path):
        pass
    states = [outcome.state for outcome in group_outcomes(tmp_path / "run")]
    assert (states.count("confirmed"), states.count("working")) == (4, 4), "no evaluation is given again"


def test_a_start_in_two_processes_is_refused_before_the_run_begins(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")  # as torchrun sets it
    with pytest.raises(ValueError, match="for several use AsyncGRPOTrainer"):
        RolloutFunction(make_env, args_of(tmp_path), "http://127.0.0.1:9", tmp_path).__enter__()
    assert not (tmp_path / "run").exists()


def test_a_lost_step_is_made_again_with_other_tasks_and_another_number_of_generations(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that died before its checkpoint; its groups are taken."""

    async def made() -> Any:
        return make_env(equal_rewards="send")

    found = []
    for size, prompts in ((2, ["sum-2"] * 2 + ["sum-1"] * 2), (2, ["sum-2"] * 2), (3, ["sum-2"] * 3 + ["sum-3"] * 3)):
        with RolloutFunction(made, args_of(tmp_path), "http://127.0.0.1:9", tmp_path) as function:
            monkeypatch.setattr(function._weights, "load", Pushed().load)
            trainer = trainer_at(0)
            trainer.num_generations = size
            found.append(function(prompts, trainer))
    assert found[1]["rollout_id"] == found[0]["rollout_id"][:2], "what is asked for again is given again"
    assert found[2]["task_id"] == ["sum-2"] * 3 + ["sum-3"] * 3


def test_settings_without_effect_and_another_temperature_are_refused(make_env: Any, tmp_path: Path) -> None:
    async def made() -> Any:
        return make_env()

    with pytest.raises(ValueError, match="top_k of GRPOConfig would have no effect"):
        RolloutFunction(made, args_of(tmp_path, top_k=20), "http://127.0.0.1:9", tmp_path)
    with pytest.raises(ValueError, match=r"has temperature 0.7, and --env.temperature is 1.0"):
        RolloutFunction(made, args_of(tmp_path, temperature=0.7), "http://127.0.0.1:9", tmp_path).__enter__()


def settings(passes: int, batches: int, strategy: str = "steps") -> Any:
    return SimpleNamespace(
        steps_per_generation=passes, num_iterations=2, gradient_accumulation_steps=batches, save_strategy=strategy
    )


def begun(function: RolloutFunction, args: Any, max_steps: int, save_steps: int) -> None:
    told = SimpleNamespace(max_steps=max_steps, save_steps=save_steps, stateful_callbacks={})
    function.on_train_begin(args, told, None)


def test_groups_are_trained_when_the_last_step_of_their_generation_is_done(
    make_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def made() -> Any:
        return make_env(equal_rewards="send")

    with RolloutFunction(made, args_of(tmp_path), "http://127.0.0.1:9", tmp_path) as function:
        monkeypatch.setattr(function._weights, "load", Pushed().load)
        begun(function, args := settings(3, 2), 6, 3)
        function(["sum-1", "sum-1"], trainer_at(0))
        for number in range(3):
            assert not function.ledger.trained
            if number:
                function(["sum-2"], trainer_at(number, training=False))
            function.on_step_end(args, trainer_at(number).state, None)
    assert function.ledger.trained == {"step-0/0/2/sum-1"}, "an evaluation between them changes nothing"


def test_checkpoints_within_a_generation_are_refused(tmp_path: Path) -> None:
    function = RolloutFunction(None, args_of(tmp_path), "http://127.0.0.1:9", tmp_path)  # type: ignore[arg-type]
    for passes, batches, strategy, max_steps, save_steps in (
        (1, 1, "steps", 4, 2),
        (1, 4, "steps", 3, 1),  # two generations a step
        (2, 1, "epoch", 8, 500),
        (2, 1, "no", 8, 500),
    ):
        begun(function, settings(passes, batches, strategy), max_steps, save_steps)
    for passes, batches, strategy, max_steps, save_steps in (
        (1, 1, "steps", 4, 1),
        (1, 1, "steps", 5, 2),
        (1, 1, "best", 4, 2),
        (3, 4, "no", 6, 6),  # one and a half
    ):
        with pytest.raises(ValueError, match=r"trained on in [\d.]+ steps .* give whole generations in save_steps and"):
            begun(function, settings(passes, batches, strategy), max_steps, save_steps)


def test_a_rollout_that_is_not_one_row_is_refused_by_its_name() -> None:
    assert len(one_row_each(given(rollout(1.0, 1, "a"), rollout(0.0, 1, "b")))) == 2
    with pytest.raises(ValueError, match=r"rollout a has 2 rows, .* train it with AsyncGRPOTrainer"):
        one_row_each(given(rollout(1.0, 2, "a"), rollout(0.0, 1, "b")))
    with pytest.raises(ValueError, match=r"turns of rollout a have advantages of their own, .* with AsyncGRPOTrainer"):
        one_row_each(given(rollout(1.0, 1, "a", turn_advantages=[0.5]), rollout(0.0, 1, "b")))
    lost = rollout(0.0, 1, "b")
    result: AgentResult = lost.result
    spoilt = replace(lost, result=replace(result, record=()))
    with pytest.raises(ValueError, match=r"rollout b has no row \(.*\), and GRPOTrainer wants one a prompt"):
        one_row_each(given(rollout(1.0, 1, "a"), spoilt))


def test_the_rewards_are_those_that_were_given() -> None:
    assert given_reward(completions=["x", "y"], reward=[0.5, 1.0]) == [0.5, 1.0]
    assert given_reward(completions=["x", "y"]) == [0.0, 0.0], "the async trainer never asks"
