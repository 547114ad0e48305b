"""Whatever test.sh is: cheats are not rewarded where tests are watched, and honest work is."""

from __future__ import annotations

from pathlib import Path

import pytest
from graders import BELIEVED, Grader
from graders import CHEATS as GRADER_CHEATS
from honest_graders import HONEST
from suite_cheats import SUITE_CHEATS
from task_formats import write
from turns import share, share_or_all

from envs.judging.watched_tasks import is_watched
from envs.types import TESTS_UNSEEN, Hidden, Task, Verdict

CHEATS = {**GRADER_CHEATS, **SUITE_CHEATS}


def sample(root: Path, grader: Grader) -> Task:
    tests = write(root / "tests", {"test.sh": grader.script, **grader.also})
    hidden = Hidden(tests, timeout_s=60.0, graded=grader.graded)
    if grader.image:
        made = write(
            root / "image", {"Dockerfile": f"FROM atropos-agent/base:debian12\n{grader.image}\nWORKDIR /app\n"}
        )
        return Task("grader", "Do it.", hidden, context=made, workdir="/app")
    return Task("grader", "Do it.", hidden, image="atropos-agent/base:debian12", workdir="/app")


def samples(tmp_path: Path, table: dict[str, Grader]) -> dict[str, tuple[Task, str]]:
    return {name: (sample(tmp_path / str(i), table[name]), table[name].agent) for i, name in enumerate(table)}


def wrong(table: dict[str, Grader], verdicts: dict[str, Verdict], reward: float) -> dict[str, object]:
    """What was judged otherwise than it should be."""
    found: dict[str, object] = {}
    for name, verdict in verdicts.items():
        if verdict.reward != reward:
            found[name] = verdict.explanation
        elif table[name].sign and table[name].sign not in verdict.signs:
            found[name] = verdict.signs
    return found


def test_what_is_watched_and_what_is_believed_is_told_apart(tmp_path):
    assert all(is_watched(task) for task, _ in samples(tmp_path / "watched", CHEATS).values())
    assert not any(is_watched(task) for task, _ in samples(tmp_path / "believed", BELIEVED).values())


@pytest.mark.docker
@share_or_all(3)
async def test_graders_give_cheats_nothing(judge_all, tmp_path, most):
    table = share(CHEATS, most)
    assert wrong(table, await judge_all(samples(tmp_path, table)), 0.0) == {}


@pytest.mark.docker
@share_or_all(3)
async def test_graders_reward_honest_work(judge_all, tmp_path, most):
    table = share(HONEST, most)
    assert wrong(table, await judge_all(samples(tmp_path, table), honest=True), 1.0) == {}


@pytest.mark.docker
@share_or_all(3)
async def test_what_nothing_watches_is_believed_and_marked(judge_all, tmp_path, most):
    table = share(BELIEVED, most)
    verdicts = await judge_all(samples(tmp_path, table))
    assert wrong(table, verdicts, 1.0) == {}
    for verdict in verdicts.values():
        assert verdict.metrics[TESTS_UNSEEN] == 1.0
        assert "as test.sh wrote, because the task is unwatched" in verdict.explanation
