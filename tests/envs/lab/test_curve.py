"""The curve of a learning run: what is read, and how sure it is."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from samples import rollout

from envs.lab.curve import Curve, Evaluation, gain, rise
from envs.records import atif
from envs.records.atif import FILE_NAME, RolloutWriter, parts


def step(number: int, rewards: list[float], **more: Any) -> dict[str, Any]:
    return {"step": number, "reward": sum(rewards) / len(rewards), "group_rewards": rewards, "rollout_ids": []} | more


def test_a_rise_is_told_from_noise() -> None:
    up = rise([step(n, [n / 12, n / 12 + 0.05]) for n in range(12)])
    flat = rise([step(n, [0.3 + 0.1 * (n % 3), 0.5 - 0.1 * (n % 3)]) for n in range(12)])
    assert up is not None and flat is not None
    assert up.p_value < 0.01 < flat.p_value
    assert up.last > up.first
    assert rise([step(1, [0.5])]) is None


def walk(rng: random.Random, *, push: float, drift: float = 0.0) -> list[dict[str, Any]]:
    """17 steps of four groups of eight, by a policy whose log odds are pushed by so much each step, at random."""
    odds, steps = -0.2, []
    for number in range(17):
        tasks = [1 / (1 + math.exp(-odds - rng.gauss(0, 0.7))) for _ in range(4)]
        steps.append(step(number, [sum(rng.random() < task for _ in range(8)) / 8 for task in tasks]))
        odds += drift + rng.gauss(0, push)
    return steps


@pytest.mark.parametrize("push", [0.0, 0.1, 0.2, 0.4])
def test_a_policy_that_wanders_is_seldom_taken_for_one_that_learns(push: float) -> None:
    rng = random.Random(1)
    found = [rise(walk(rng, push=push), draws=40) for _ in range(150)]
    wandering = [one.p_wandering for one in found if one is not None and one.p_wandering is not None]
    assert len(wandering) == 150
    assert sum(p < 0.05 for p in wandering) <= 0.08 * 150, "5%, and what 150 runs can miss it by"
    if push >= 0.2:
        assert sum(one is not None and one.p_value < 0.05 for one in found) > 0.12 * 150, "it is no test of that"


def test_a_policy_that_learns_is_found_more_often() -> None:
    rng = random.Random(2)
    found = [rise(walk(rng, push=0.05, drift=0.15), draws=1) for _ in range(100)]
    assert sum(one is not None and (one.p_wandering or 1) < 0.05 for one in found) > 15


def test_of_few_steps_nothing_is_said_about_wandering() -> None:
    found = rise([step(n, [0.1 * n, 0.2 * n]) for n in range(4)])
    assert found is not None and found.p_wandering is None


def test_the_gain_is_that_of_the_same_tasks() -> None:
    before = Evaluation(0, {"a": 0.0, "b": 0.5, "c": 1.0, "e": 0.5, "f": 0.5}, 10)
    after = Evaluation(9, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0, "e": 1.0, "f": 1.0}, 12)
    difference, spread, tasks = gain(before, after)
    assert (difference, tasks) == (pytest.approx(0.5), 5)
    assert spread is not None and spread.low < 0.5 < spread.high


def test_no_interval_is_given_that_the_tasks_can_not_carry() -> None:
    assert Evaluation(0, {"a": 0.75}, 4).interval is None
    assert str(Evaluation(0, {"a": 0.75}, 4)) == "75%, no interval (too few tasks, or all alike) (1 task, 4 samples)"
    all_solved = Evaluation(0, {name: 1.0 for name in "abcdef"}, 24).interval
    assert all_solved is not None and 0.5 < all_solved.low < 0.7 and all_solved.high == 1.0


async def test_a_run_is_read_as_it_grows(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    async with RolloutWriter(tmp_path / "environment") as writer:
        await writer.write(rollout("r-1", reward=1.0))
        await writer.write(rollout("r-2", reward=0.0))
    curve = Curve(tmp_path)
    steps = tmp_path / "trainer/steps.jsonl"
    line = step(1, [0.5], entropy=0.2, mismatch_fresh=1e-7, seconds={"wait": 3.0}) | {"rollout_ids": ["r-1", "r-2"]}
    steps.write_text(json.dumps(line) + "\n" + '{"step": 2, "rew')
    curve.read()
    curve.read()
    assert [one["step"] for one in curve.steps] == [1]
    assert curve.series("solved") == [(1.0, 0.5)]
    assert curve.series("parsed") == [(1.0, 0.0)], "the sample's rollouts hold a malformed call"
    assert curve.series("seconds/wait") == [(1.0, 3.0)]
    for number, solved in ((0, 1), (1, 2)):
        folder = tmp_path / f"eval-{number:06}"
        folder.mkdir()
        (folder / "eval-0.json").write_text(json.dumps({"tasks": [{"task_id": "x", "solved": solved, "samples": 2}]}))
    curve.read()
    assert [(one.step, one.mean) for one in curve.evaluations] == [(0, 0.5), (1, 1.0)]


def test_a_run_with_damaged_files_is_read_or_named(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "environment").mkdir()
    (tmp_path / "eval-000000").mkdir()
    lines = [json.dumps(step(n, [0.5]) | {"rollout_ids": []}) for n in range(3)]
    (tmp_path / "trainer/steps.jsonl").write_text("\n".join([lines[0], lines[1][1:], lines[2]]) + "\n")
    (tmp_path / "environment/metrics.json").touch()
    (tmp_path / "eval-000000/eval-0.json").touch()
    curve = Curve(tmp_path)
    with pytest.raises(ValueError, match=r"eval-0.json can't be read .*; delete it, and it is made from its samples"):
        curve.read()
    assert [one["step"] for one in curve.steps] == [0, 2]


async def test_all_parts_of_the_saved_rollouts_are_read_while_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, names = tmp_path / "environment", [f"r-{n}" for n in range(5)]
    (tmp_path / "trainer").mkdir()
    monkeypatch.setattr(atif, "PART", 1)
    curve = Curve(tmp_path)
    for number, name in enumerate(names, start=1):
        async with RolloutWriter(folder) as writer:
            await writer.write(rollout(name, reward=1.0))
        with parts(folder)[-1][1].open("ab") as file:
            file.write(b'{"torn by a crash')
        line = step(number, [1.0]) | {"rollout_ids": names[:number]}
        with (tmp_path / "trainer/steps.jsonl").open("a") as steps:
            steps.write(json.dumps(line) + "\n")
        curve.read()
    assert len(parts(folder)) > 2 and parts(folder)[0][1].name == FILE_NAME
    assert len(curve._rollouts.read()) == 5
    assert curve.series("solved") == [(float(number), 1.0) for number in range(1, 6)]
