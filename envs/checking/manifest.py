"""The findings of `tasks check` on each task, kept as JSON beside the tasks.

A task may be used if it was seen to be sound as it is now. A task is not known to be sound if its files have
changed since, by their content hash, or if it was never checked.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from envs.judging.record import named, of_step
from envs.records.disk import replace_file
from envs.types import BadTask, Hidden, Step, Task

logger = logging.getLogger(__name__)

VERSION = 5
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Attack:
    """An attempt to be rewarded without doing the task (`tasks attack`).

    by: a model, or "built-in". name: of the cheat, or of the model's attempt. reward: None if it could not be
    judged; problem says why. rewarded: it got more than doing nothing. patch: the rewarded changes, the beginning of a
    diff for people.
    """

    by: str
    name: str
    reward: float | None
    rewarded: bool = False
    patch: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings on one task.

    digest: content hash of the task as it was checked.
    reference, nothing: rewards, one a repeat, of the reference solution and of an untouched tree.
    seconds: wall time of the whole check, image build included; verifier_s: the longest judging.
    memory_mb: the verifier's peak; image_mb: size of the image, shared layers included. 0 if not known.
    flaky: repeats disagreed; the task is kept out until a check finds them agreed. flaky_tests: those that differed.
    problem: why the task must not be used; None when it may.
    notes: remarks on a usable task.
    watched: whether tests of the reference were seen (`envs.judging.watched_tasks`). in_place: the reference is
    rewarded in its own sandbox alone, so all work is judged where it was done.
    record: the evidence that each judgement asks of the tests (`envs.judging.record`); unverified: tests that compare
    with nothing among decoys, so code which forces them may pass. blind_spots: the classes of cheating that the
    tests could not notice, a line each. attacks: those tried since the check.
    """

    task_id: str
    digest: str
    image: str
    reference: tuple[float, ...]
    nothing: tuple[float, ...]
    seconds: float
    problem: str | None = None
    flaky: bool = False
    verifier_s: float = 0.0
    memory_mb: float = 0.0
    image_mb: float = 0.0
    notes: tuple[str, ...] = ()
    watched: bool = True
    in_place: bool = False
    record: str = ""
    unverified: tuple[str, ...] = ()
    blind_spots: tuple[str, ...] = ()
    attacks: tuple[Attack, ...] = ()
    flaky_tests: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.problem is None

    @property
    def accepts(self) -> list[Attack]:
        """Return the rewarded attacks."""
        return [attack for attack in self.attacks if attack.rewarded]


def write_manifest(path: Path, results: Iterable[CheckResult]) -> None:
    """Write the findings, keyed by task, in place of the old file. A reader never sees a part of it."""
    tasks = {result.task_id: {**asdict(result), "ok": result.ok} for result in results}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps({"version": VERSION, "tasks": tasks}, indent=1) + "\n").encode())


def add_results(path: Path, kept: Mapping[str, CheckResult], new: Mapping[str, CheckResult]) -> None:
    """Write new results into a manifest, beside those `kept` and those that another process wrote there meanwhile."""
    with ExitStack() as stack:
        with suppress(OSError):  # of a file system without locks
            folder = os.open(path.parent, os.O_RDONLY)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        there: Mapping[str, CheckResult] = {}
        with suppress(BadTask):  # of another version, as for a check of all tasks again
            there = read_manifest(path) if path.is_file() else {}
        write_manifest(path, {**kept, **there, **new}.values())


def read_manifest(path: Path) -> dict[str, CheckResult]:
    """Return the results by task. Raises BadTask when the file has no known version."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise BadTask(f"{path} is of version {found['version']}, not {VERSION}; run `tasks check --again`")
        results = [_result(row) for row in found["tasks"].values()]
    except BadTask:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadTask(
            f"{path} is no manifest of `tasks check` ({error!r}); bring it back from a copy, or run "
            "`tasks check --again`"
        ) from None
    return {result.task_id: result for result in results}


def _result(row: Mapping[str, Any]) -> CheckResult:
    """Return the content of one entry; missing fields have their defaults."""
    known: dict[str, Any] = {field.name: row[field.name] for field in fields(CheckResult) if field.name in row}
    known["attacks"] = [Attack(**attack) for attack in row.get("attacks", ())]
    return CheckResult(**known | {name: tuple(value) for name, value in known.items() if isinstance(value, list)})


def as_checked(task: Task, result: CheckResult) -> Task:
    """Return a task as it is judged after its check."""
    return with_record(task, result.record, result.verifier_s or None, result.watched, result.in_place)


def with_record(
    task: Task, record: str, usual_s: float | None = None, watched: bool | None = None, in_place: bool = False
) -> Task:
    """Return the task as it is judged once its reference was. In a task of several steps each has its part of the
    record, and is watched if it has one, although the tests of others were not seen."""

    def seen(hidden: Hidden, record: str, watched: bool | None) -> Hidden:
        return replace(hidden, record=record, usual_s=usual_s, watched=watched, in_place=in_place)

    def of(step: Step) -> Hidden:
        part = of_step(record, step.name) if record else ""
        names = named(part)
        return seen(step.hidden, part, watched if watched is None else any(names) or (watched and not names))

    steps = tuple(replace(step, hidden=of(step)) for step in task.steps)
    return replace(task, hidden=seen(task.hidden, record, watched), steps=steps)


def usable(tasks: Sequence[Task], results: Mapping[str, CheckResult], where: object) -> list[Task]:
    """Return the tasks that were seen to be sound as they are now; one log line counts the others.

    where: names the manifest. Raises BadTask when none is left.
    """
    sound = [task for task in tasks if task.id in results and results[task.id].digest == task.digest]
    chosen = [as_checked(task, results[task.id]) for task in sound if results[task.id].ok]
    if len(chosen) < len(tasks):
        logger.warning(
            "%d of %d tasks are left out by %s: %d failed its check, %d have changed or are new since (`tasks check` "
            "adds them)",
            *(len(tasks) - len(chosen), len(tasks), where, len(sound) - len(chosen), len(tasks) - len(sound)),
        )
    if tasks and not chosen:
        raise BadTask(
            f"no task is known to be sound by {where}; run `tasks check` on the folder again, with "
            "--default-network as in the run"
        )
    return chosen
