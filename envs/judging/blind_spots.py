"""Blind spots: the classes of cheating that a task's tests could not notice, as a help to choose training tasks.

docs/reward.md defines the classes, and says how likely each is found if tests can notice it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from envs.judging.record import unverified
from envs.types import Task, Verdict


def blind_spots(task: Task, references: Sequence[Verdict], record: str, watched: bool) -> tuple[str, ...]:
    """Return the classes that a checked task's tests can't notice, a line each.

    references: the verdicts on its reference. record: the kept record of them. watched: whether
    tests were seen that it has not brought along.
    """
    found = []
    forced, all_of_them = len(unverified(record)), _tests(record)
    if forced:
        found.append(f"forced tests: {forced} of {all_of_them} compare with nothing that has decoys")
    elif not record and any(verdict.evidence for verdict in references):
        found.append("forced tests: repeats called the tests differently, so none is asked for")
    if "printed-results" in task.tags:
        found.append("printed results: what a test runner prints is believed")
    elif not watched:
        found.append("unwatched: no test of the task is run by pytest or unittest, so test.sh's word is the reward")
    return tuple(found)


def _tests(record: str) -> int:
    return sum(len(call.get("tests", ())) for call in json.loads(record or "[]"))
