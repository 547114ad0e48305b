"""Blind spots: the classes of cheating that a task's tests could not notice, so that users choose what to train on.

What a class is, and how likely each is found where tests can notice it, says docs/reward.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.judging.record import unverified
from envs.judging.steps import parts
from envs.types import TESTS_UNSEEN, Task, Verdict

_MAX_BYTES = 2**20
_GIVEN_TO_PYTHON = re.compile(
    r"python[\d.]*(?:[ \t]+-(?:[WX][ \t]+\S+|(?![mc]\b)[^\s-]\S*))*[ \t]+-(?:\w*c\b|\s|$).*/logs/verifier", re.DOTALL
)
"""Python that is given code, after options of its own: those of a module (`-m pytest -c FILE`) are none."""


def blind_spots(task: Task, references: Sequence[Verdict], record: str) -> tuple[str, ...]:
    """Return the classes that a checked task's tests can't notice, a line each.

    references: the verdicts on its reference. record: what was kept of them.
    """
    found = []
    forced, all_of_them = len(unverified(record)), _tests(record)
    if forced:
        found.append(f"forced tests: {forced} of {all_of_them} compare with nothing that has decoys")
    elif not record and any(verdict.evidence for verdict in references):
        found.append("forced tests: repeats called the tests differently, so none is asked for")
    unseen = any(verdict.metrics.get(TESTS_UNSEEN) for verdict in references)
    unwatched = unseen or not any(verdict.tests for verdict in references)
    if "printed-results" in task.tags:
        found.append("printed results: what a test runner prints is believed")
    elif unwatched:
        found.append(
            "unwatched: test.sh runs no tests that are watched, and believes what programs print, leave or return"
        )
    hidden = [part.hidden for part in parts(task)]
    if any(one.user not in (None, "root") for one in hidden):
        found.append("own user: test.sh does not run as root, so what is judged can write the reward")
    folders = {folder for one in hidden for folder in (one.tests, one.shared_tests) if folder is not None}
    texts = list(_texts(folders))
    if any(_is_grader(path, text) for path, text in texts):
        found.append("grader as root: Python of the task's writes the reward, from what it reads of what was made")
    if any(path.name == "tests.json" and json.loads(text).get("READABLE") for path, text in texts):
        found.append("readable tests: what is judged can read them")
    return tuple(found)


def _tests(record: str) -> int:
    return sum(len(call.get("tests", ())) for call in json.loads(record or "[]"))


def _is_grader(path: Path, text: str) -> bool:
    if path.suffix == ".py":
        return "/logs/verifier" in text
    return path.suffix == ".sh" and _GIVEN_TO_PYTHON.search(text) is not None


def _texts(folders: set[Path]) -> Iterator[tuple[Path, str]]:
    for folder in sorted(folders):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".sh", ".json") and path.is_file() and path.stat().st_size <= _MAX_BYTES:
                yield path, path.read_text(encoding="utf-8", errors="replace")
