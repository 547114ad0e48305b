"""The curve of a learning run: what is read, how sure it is, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from samples import rollout

from envs.lab.curve import Curve, Evaluation, bootstrap, gain, rise
from envs.lab.kinds import KINDS
from envs.lab.plots import findings, write_page
from envs.lab.practice import write_tasks
from envs.lab.rungs import RUNGS
from envs.lab.synthetic import Example, examples
from envs.records.atif import RolloutWriter
from envs.tasks.harbor import load_tasks


def step(number: int, rewards: list[float], **more: Any) -> dict[str, Any]:
    return {"step": number, "reward": sum(rewards) / len(rewards), "group_rewards": rewards, "rollout_ids": []} | more


def test_a_rise_is_told_from_noise() -> None:
    up = rise([step(n, [n / 12, n / 12 + 0.05]) for n in range(12)])
    flat = rise([step(n, [0.3 + 0.1 * (n % 3), 0.5 - 0.1 * (n % 3)]) for n in range(12)])
    assert up is not None and flat is not None
    assert up.p_value < 0.01 < flat.p_value
    assert up.last > up.first
    assert rise([step(1, [0.5])]) is None


def test_the_gain_is_that_of_the_same_tasks() -> None:
    before = Evaluation(0, {"a": 0.0, "b": 0.5, "c": 1.0}, 6)
    after = Evaluation(9, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.0}, 8)
    difference, (low, high) = gain(before, after)
    assert difference == pytest.approx(0.5)
    assert low <= 0.5 <= high
    assert bootstrap([1.0, 1.0, 1.0]) == (1.0, 1.0)


async def test_a_run_is_read_as_it_grows_and_drawn(tmp_path: Path) -> None:
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
    write_page(curve, tmp_path / "learning.html", {"rung": "<smoke>", "environment": {"a": "1"}})
    page = (tmp_path / "learning.html").read_text()
    assert "&lt;smoke&gt;" in page and "<script" not in page
    assert page.count("<svg") == 13
    assert (tmp_path / "curve.svg").read_text().startswith("<svg xmlns")
    assert ("held-out gain", "+50% [+50%, +50%]") in findings(curve)


def test_evaluations_are_before_within_and_after() -> None:
    assert RUNGS["laptop"].milestones == [0, 12, 24]
    assert RUNGS["smoke"].milestones[0] == 0
    assert all(rung.milestones[-1] == rung.steps for rung in RUNGS.values())


def test_made_up_tasks_become_directories_that_share_worlds(tmp_path: Path) -> None:
    folders = write_tasks(examples(60, 3), tmp_path)
    tasks = load_tasks(tmp_path)
    assert len(tasks) == len(folders) > 50
    assert {folder.name.rpartition("-")[0] for folder in folders} == {kind.name.replace("_", "-") for kind in KINDS}
    worlds = {tuple(sorted(str(p.relative_to(f)) for p in (f / "environment").rglob("*"))) for f in folders}
    assert len(worlds) <= 3


def test_tasks_of_a_world_share_no_name(tmp_path: Path) -> None:
    one = Example("a", "Delete x", "rm -r x", {"x/README": "text\n"})
    same = Example("b", "Make x/y", "mkdir -p x/y")
    (folder,) = write_tasks([one, same], tmp_path)
    assert folder.name.startswith("a-")


def test_what_would_change_nothing_is_no_task(tmp_path: Path) -> None:
    nothing = Example("copy_file", "Copy a.txt to a.txt", "true", {"a.txt": "text\n"})
    assert write_tasks([nothing], tmp_path) == []
