"""Select a run's tasks: by tag, by manifest, by difficulty, by part, by shard.

In random parts, a task's place depends on its id and the seed alone: adding tasks moves none
of the others, and processes without knowledge of each other agree.
"""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from envs.checking.manifest import NAME, read_manifest, usable
from envs.records.read import read_scores
from envs.types import BadTask, Task
from sandboxes.plurals import plural

logger = logging.getLogger(__name__)

C = TypeVar("C")

_SHOWN = 40
"""Most tags in a message."""


def load_checked(load: Callable[[C], Any], config: C) -> tuple[list[Task], list[Task]]:
    """Return the tasks to train on and those to evaluate on, of an environment's `load_tasks`.

    Raises BadTask, with the function's name, for other values, ids of several tasks, and unexpected exceptions; OSError
    and ValueError as they are."""
    name = getattr(load, "__qualname__", "load_tasks")
    try:
        found = load(config)
        parts = found if isinstance(found, tuple | list) and len(found) == 2 else ()
        both = [[*part] for part in parts if isinstance(part, Iterable)]
    except (OSError, ValueError):
        raise
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename}, line {place.lineno}"
        raise BadTask(f"{name} raised {type(error).__name__}: {error} ({where})") from error
    wrong = [one for part in both for one in part if not isinstance(one, Task)]
    if len(both) != 2 or wrong:
        got = f"one of its tasks is {wrong[0]!r:.80}" if wrong else f"it returned {found!r:.80}"
        raise BadTask(f"{name}: {got}; return two lists of tasks, those to train on and those to evaluate on")
    for part in both:
        check_ids(part)
    return both[0], both[1]


def check_ids(tasks: Sequence[Task]) -> None:
    """Raise BadTask if an id is no text, or that of several tasks: a run knows them by it."""
    for place, task in enumerate(tasks):
        if task.id != task.id.encode(errors="replace").decode():
            raise BadTask(f"tasks[{place}].id: {task.id!r} is no text: half of a surrogate pair is in it")
    twice = [name for name, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        raise BadTask(f"{plural(len(twice), 'id')} of several tasks, such as {twice[0]!r}; give each its own")


def select_tagged(
    tasks: Sequence[Task], tags: Collection[str], option: str, *, without: Collection[str] = ()
) -> list[Task]:
    """Return the tasks with one of `tags` (all of them when there are none) and none of `without`. Names of none are
    logged.

    option: as it is written, for the message. Raises BadTask when none is left."""
    chosen = [task for task in tasks if (not tags or is_named(task, tags)) and not is_named(task, without)]
    if not chosen:
        known = sorted({tag for task in tasks for tag in task.tags})
        more = f" and {len(known) - _SHOWN} others" if len(known) > _SHOWN else ""
        there = ", ".join(known[:_SHOWN]) + more
        raise BadTask(f"no task has one of the tags {', '.join(tags)} ({option}); there are {there}, and task ids")
    if unknown := [name for name in tags if not any(is_named(task, [name]) for task in tasks)]:
        logger.warning("%s: no task has the tag or the id %s", option, ", ".join(unknown))
    return chosen


def is_named(task: Task, names: Collection[str]) -> bool:
    """Return whether a task's id or one of its tags is among the names."""
    return not {task.id, *task.tags}.isdisjoint(names)


def keep_sound(tasks: Sequence[Task], folder: Path, manifest: Path | None) -> list[Task]:
    """Return the tasks listed as sound in the manifest; all of them if the folder has none and none is named."""
    path = manifest or folder / NAME
    if manifest is None and not path.is_file():
        return list(tasks)
    return usable(tasks, read_manifest(path), path)


def split(tasks: Sequence[Task], share: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Return (for training, held out), the latter about `share` of them. Raises BadTask when a part is empty."""
    held = [task for task in tasks if _place(task, f"split/{seed}") < share]
    kept = [task for task in tasks if _place(task, f"split/{seed}") >= share]
    if not held or not kept:
        raise BadTask(
            f"--env.eval_share {share} leaves {plural(len(kept), 'task')} to train on and {len(held)} to evaluate on"
        )
    return kept, held


def shard(tasks: Sequence[Task], part: str, seed: int, *, least: int = 1) -> list[Task]:
    """Return the tasks of part "I/N" (I from 1).

    The parts don't overlap, are all tasks together, and differ in size by at most one. Every process must see the
    same tasks. Raises BadTask for another form, or a part of fewer than `least`.
    """
    number, _, parts = part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise BadTask(f'--env.shard {part!r} is not of the form "1/4", the first of four parts')
    ordered = sorted(tasks, key=lambda task: (_place(task, f"shard/{seed}"), task.id))
    mine = {task.id for task in ordered[int(number) - 1 :: int(parts)]}
    if len(mine) < least:
        raise BadTask(f"--env.shard {part}: only {plural(len(tasks), 'task')} in all")
    return [task for task in tasks if task.id in mine]


def keep_useful(tasks: Sequence[Task], shares: Mapping[str, tuple[int, int]], least: int) -> list[Task]:
    """Return the tasks with something left to learn.

    Tasks solved always, or never, in at least `least` rollouts are left out.
    shares: (solved, rollouts) by task. Raises BadTask when none is left.
    """
    chosen = []
    for task in tasks:
        solved, rollouts = shares.get(task.id, (0, 0))
        if rollouts < least or 0 < solved < rollouts:
            chosen.append(task)
    if len(chosen) < len(tasks):
        logger.info("%d of %d tasks are left out: always or never solved before", len(tasks) - len(chosen), len(tasks))
    if not chosen:
        raise BadTask("every task was always or never solved before (--env.difficulty_from); nothing is left to learn")
    return chosen


def solved_shares(runs: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Return (solved, rollouts) of each task in the records of earlier runs. Raises BadTask for a run without any."""
    solved: dict[str, int] = defaultdict(int)
    rollouts: dict[str, int] = defaultdict(int)
    for run in runs:
        try:
            for task, reward in read_scores(run):
                solved[task] += reward >= 1.0
                rollouts[task] += 1
        except FileNotFoundError as error:
            raise BadTask(f"{error.filename} is not there; name directories of earlier runs") from None
    return {task: (solved[task], count) for task, count in rollouts.items()}


def _place(task: Task, salt: str) -> float:
    """Return a number in [0, 1) from the task's id and the salt alone."""
    digest = hashlib.sha256(f"{salt}/{task.id}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
