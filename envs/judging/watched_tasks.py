"""Watched tasks: pytest or unittest run their tests, so the end of each test is seen.

In the others test.sh's own word is the reward. `tasks check` decides it by the task's reference. Without its word,
a task is watched if its files speak of pytest or unittest. A rollout's actions never decide it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from envs.types import BadTask, Hidden, Task
from sandboxes.plurals import plural

logger = logging.getLogger(__name__)

_RUNNERS = re.compile(
    rb"\bpytest\b|\bpy\.test\b|(\bimport\b[\w., \t]{0,99}|\bfrom\s|-\w*m\W{1,4})\bunittest\b(?!\.mock| import mock)"
)
"""Programs of other languages are called `unittest`, too."""
_MAX_BYTES = 4 * 2**20
"""Bytes of the largest file that is searched for them."""
_NAMED = 10


def speak_of_runners(files: Iterable[tuple[str, bytes]]) -> bool:
    """Return whether files for /tests name pytest or unittest, or list tests of theirs. files: names and contents."""
    return any(
        name == "tests.json" or (len(data) <= _MAX_BYTES and _RUNNERS.search(data) is not None) for name, data in files
    )


def is_watched(task: Task) -> bool:
    """Return whether it is seen how the tests of a task, or of all of its steps, end."""
    return all(_is_watched(hidden) for hidden in _each(task))


def lists_tests(task: Task) -> bool:
    """Return whether a task, or a step of it, lists its tests: these decide, whatever its test.sh says."""
    return any((folder / "tests.json").is_file() for hidden in _each(task) for folder in folders_of(hidden))


def folders_of(hidden: Hidden) -> list[Path]:
    """Return the folders with the content for /tests; of files with one name the last counts."""
    return [folder for folder in (hidden.shared_tests, hidden.tests) if folder is not None]


def files_of(folders: Iterable[Path], max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files in folders; larger ones are skipped."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size <= max_bytes:
                yield path.relative_to(folder).as_posix(), path.read_bytes()


def select(tasks: Sequence[Task], unwatched: str) -> list[Task]:
    """Return the tasks that a run uses, and name the unwatched ones, once.

    unwatched: "use" them, or "refuse" them and those that are judged in place. Raises BadTask if none is left."""
    placed = [task.id for task in tasks if task.hidden.in_place]
    if placed and unwatched == "use":
        logger.warning("%d of %d tasks judged in place (docs/reward.md): %s", len(placed), len(tasks), _names(placed))
    others = [task for task in tasks if not is_watched(task) or (unwatched != "use" and task.hidden.in_place)]
    if not others:
        return list(tasks)
    names = _names([task.id for task in others])
    count = f"{len(others)} of {plural(len(tasks), 'task')}"
    if unwatched == "use":
        logger.warning("%s unwatched, so the word of their test.sh is the reward (docs/reward.md): %s", count, names)
        return list(tasks)
    left = [task for task in tasks if task not in others]
    if not left:
        raise BadTask(
            f"--env.unwatched refuse: {count} unwatched or judged in place (docs/reward.md), so none is left: {names}"
        )
    logger.warning("%s left out as unwatched or judged in place (--env.unwatched): %s", count, names)
    return left


def _names(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_NAMED]) + (", ..." if len(ids) > _NAMED else "")


def _each(task: Task) -> list[Hidden]:
    return [step.hidden for step in task.steps] or [task.hidden]


def _is_watched(hidden: Hidden) -> bool:
    if hidden.watched is not None:
        return hidden.watched
    folders = folders_of(hidden)
    return not folders or speak_of_runners(files_of(folders, _MAX_BYTES))
