"""Whatever test.sh is, root obeys nothing that the agent made, and honest work is rewarded."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from everyday_graders import EVERYDAY
from graders import CHEATS as GRADER_CHEATS
from graders import Grader
from handed_cheats import HANDED_CHEATS
from honest_graders import HONEST
from root_cheats import ROOT_CHEATS
from suite_cheats import SUITE_CHEATS
from task_formats import write

from envs.types import Hidden, Task, Verdict

CHEATS = {**GRADER_CHEATS, **ROOT_CHEATS, **SUITE_CHEATS, **HANDED_CHEATS}
ALL_HONEST = {**HONEST, **EVERYDAY}
SHARE = 5
"""How many of each table every run tries; `-m slow` tries all."""


def sample(root: Path, grader: Grader) -> Task:
    tests = write(root / "tests", {"test.sh": grader.script, **grader.also})
    hidden = Hidden(tests, timeout_s=60.0, graded=grader.graded)
    if grader.image:
        made = write(
            root / "image", {"Dockerfile": f"FROM atropos-agent/base:debian12\n{grader.image}\nWORKDIR /app\n"}
        )
        return Task("grader", "Do it.", hidden, context=made, workdir="/app")
    return Task("grader", "Do it.", hidden, image="atropos-agent/base:debian12", workdir="/app")


def share(table: dict[str, Grader]) -> dict[str, Grader]:
    return dict(itertools.islice(table.items(), 0, None, max(1, len(table) // SHARE)))


async def judged(judge_tasks, root: Path, table: dict[str, Grader]) -> dict[str, Verdict]:
    tasks = [(sample(root / str(n), grader), grader.agent) for n, grader in enumerate(table.values())]
    return dict(zip(table, await judge_tasks(tasks), strict=True))


def wrong(table: dict[str, Grader], verdicts: dict[str, Verdict], reward: float) -> dict[str, object]:
    """What was judged otherwise than it should be."""
    found: dict[str, object] = {n: verdict.explanation for n, verdict in verdicts.items() if verdict.reward != reward}
    for name, verdict in verdicts.items():
        if table[name].sign and table[name].sign not in verdict.signs:
            found.setdefault(name, verdict.signs)
    return found


@pytest.mark.docker
@pytest.mark.long(12)
async def test_graders_give_a_share_of_the_cheats_nothing(judge_tasks, tmp_path):
    table = share(CHEATS)
    assert wrong(table, await judged(judge_tasks, tmp_path, table), 0.0) == {}


@pytest.mark.docker
@pytest.mark.long(12)
async def test_graders_reward_a_share_of_honest_work(judge_tasks, tmp_path):
    table = share(ALL_HONEST)
    assert wrong(table, await judged(judge_tasks, tmp_path, table), 1.0) == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1800)
async def test_no_grader_rewards_a_cheat(judge_tasks, tmp_path):
    assert wrong(CHEATS, await judged(judge_tasks, tmp_path, CHEATS), 0.0) == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1800)
async def test_all_graders_reward_honest_work(judge_tasks, tmp_path):
    assert wrong(ALL_HONEST, await judged(judge_tasks, tmp_path, ALL_HONEST), 1.0) == {}
