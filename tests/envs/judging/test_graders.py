"""Whatever test.sh is: cheats are not rewarded where tests are watched, and honest work is."""

from __future__ import annotations

from pathlib import Path

import pytest
import turns
from graders import BELIEVED, Grader
from graders import CHEATS as GRADER_CHEATS
from honest_graders import HONEST
from suite_cheats import SUITE_CHEATS
from task_formats import write

from envs.judging.watched_tasks import is_watched
from envs.types import TESTS_UNSEEN, Hidden, Task, Verdict

CHEATS = {**GRADER_CHEATS, **SUITE_CHEATS}
SHARE = 3
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
    names = list(table)
    step = max(1, len(names) // SHARE)
    return {name: table[name] for name in names[turns.turn(step) :: step][:SHARE]}


def samples(tmp_path: Path, table: dict[str, Grader]) -> list[tuple[Task, str]]:
    return [(sample(tmp_path / str(i), grader), grader.agent) for i, grader in enumerate(table.values())]


def wrong(table: dict[str, Grader], verdicts: list[Verdict], reward: float) -> dict[str, object]:
    """What was judged otherwise than it should be."""
    found: dict[str, object] = {}
    for (name, grader), verdict in zip(table.items(), verdicts, strict=True):
        if verdict.reward != reward:
            found[name] = verdict.explanation
        elif grader.sign and grader.sign not in verdict.signs:
            found[name] = verdict.signs
    return found


def test_what_is_watched_and_what_is_believed_is_told_apart(tmp_path):
    assert all(is_watched(task) for task, _ in samples(tmp_path / "watched", CHEATS))
    assert not any(is_watched(task) for task, _ in samples(tmp_path / "believed", BELIEVED))


SHARE_OR_ALL = pytest.mark.parametrize(
    "of", [share, pytest.param(dict, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])], ids=["a share", "all"]
)


@pytest.mark.docker
@SHARE_OR_ALL
async def test_graders_give_cheats_nothing(judge_tasks, tmp_path, of):
    table = of(CHEATS)
    assert wrong(table, await judge_tasks(samples(tmp_path, table)), 0.0) == {}


@pytest.mark.docker
@SHARE_OR_ALL
async def test_graders_reward_honest_work(judge_tasks, tmp_path, of):
    table = of(HONEST)
    assert wrong(table, await judge_tasks(samples(tmp_path, table), honest=True), 1.0) == {}


@pytest.mark.docker
@SHARE_OR_ALL
async def test_what_nothing_watches_is_believed_and_marked(judge_tasks, tmp_path, of):
    table = of(BELIEVED)
    verdicts = await judge_tasks(samples(tmp_path, table))
    assert wrong(table, verdicts, 1.0) == {}
    for verdict in verdicts:
        assert verdict.metrics[TESTS_UNSEEN] == 1.0
        assert "as test.sh wrote, because the task is unwatched" in verdict.explanation
