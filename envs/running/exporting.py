"""`python -m envs.swe export RUN OUT`: also the rows of complete groups, in the forms of other trainers.

For these OUT is a file: Parquet for verl, JSON lines for the others. `--to hub` writes a dataset with its card.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from envs.config import describe_cut_off
from envs.delivery.estimators import USUAL, Estimator
from envs.delivery.exports import MESSAGES_ALONE, ROWS, WITHOUT_RATIOS, Export
from envs.delivery.rows import Origin, score_group
from envs.messages import SWE
from envs.records import exporting
from envs.records.atif import Place
from envs.records.read import SavedRollout, UnknownFormat, read_at, read_places
from envs.running import hub
from envs.running.group import UNMADE
from envs.running.journal import FILE_NAME, Journal
from sandboxes.naming import lazy_import
from sandboxes.plurals import plural

logger = logging.getLogger(__name__)

_HUB = lazy_import("huggingface_hub:HfApi")
_TAKES = {"sft": ": it takes solved rollouts", "preferences": ": it takes rollouts of one task with different rewards"}


def main(argv: Sequence[str], *, prog: str = SWE) -> int:
    """Export a run. Returns 0, or 2 when there is nothing to export, or no room for it."""
    more: dict[str, Callable[[Path, Path], str]] = {form: partial(write, form=form) for form in ROWS}
    return exporting.main(argv, prog=prog, more={**more, "hub": hub.write}, push=_push)


def _push(folder: Path, name: str) -> None:
    """Upload a dataset. Raises OSError if the hub does not take it, for whatever reason."""
    try:
        hub.push(folder, name, _HUB()())
    except Exception as error:  # a wrong name, no token, and the errors of whichever HTTP library it found
        remedy = f"upload it by: hf upload {name} {folder} --repo-type dataset"
        raise OSError(f"{folder} is written, but not uploaded: --hub {name}: {error}; {remedy}") from error


def write(run: Path, out: Path, *, form: str) -> str:
    """Write the rows of a run's complete groups to a file. Returns how many there are, in words.

    Raises ValueError when there are none, OSError."""
    counts: Counter[str] = Counter()
    lines = _lines(run, form, counts)
    if form == "verl":
        exporting.FRAMES().write_table(lines, out)
    else:
        exporting.write_lines(lines, out)
    if not counts["groups"]:
        raise ValueError(f"{run} holds no complete group; `process` and `serve` make some, evaluations don't")
    left = f", {plural(counts['dropped'], 'row')} left out" if counts["dropped"] else ""
    if not counts["lines"]:
        found = f"{plural(counts['groups'], 'group')} of {run}{left}"
        raise ValueError(f"--to {form} finds nothing to write in {found}{_TAKES.get(form, '')}")
    return f"{plural(counts['lines'], 'line')} of {plural(counts['groups'], 'group')}{left}"


def _lines(run: Path, form: str, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    for group in scored_groups(run, tokens=form not in MESSAGES_ALONE):
        if form not in WITHOUT_RATIOS:
            _check_ratios(run, group)
        counts["groups"] += 1
        counts["dropped"] += sum(row.segment is not None for row in group.scored.dropped)
        for line in ROWS[form](group):
            counts["lines"] += 1
            yield line


def _check_ratios(run: Path, group: Export) -> None:
    """Raise ValueError if trainers can't make importance ratios of a group's rows."""
    for rollout in group.rollouts.values():
        if (why := describe_cut_off(rollout.result.conditions.sampling)) is not None:
            forms = " or ".join(WITHOUT_RATIOS)
            raise ValueError(f"{run} was sampled with {why}; --to {forms} needs none")


def scored_groups(run: Path, *, tokens: bool = True) -> Iterator[Export]:
    """Yield the complete groups of a run, scored again by its own estimator.

    tokens: raises ValueError for a group without token ids."""
    name, estimator, groups = _groups(run)
    for number, rollouts in groups:
        carries = all(rollout.result.carries_tokens for rollout in rollouts)
        if tokens and not carries:
            raise ValueError(f"{run} was made without token ids; --to {' or '.join(MESSAGES_ALONE)} needs none")
        first = rollouts[0]
        temperature = float(first.result.conditions.sampling.get("temperature", 1.0))
        origin = Origin(number, f"{name}-{number}", first.task_id, first.seat.step, temperature, carries)
        yield Export(score_group(rollouts, origin, estimator), {rollout.id: rollout for rollout in rollouts})


def _read(run: Path, members: Sequence[tuple[int, int, int, int]]) -> Iterator[tuple[int, list[SavedRollout]]]:
    """Yield the groups of these members, given as number and place, without those that lost one on disk, as
    with a part that was moved away."""
    for number, listed in groupby(members, lambda member: member[0]):
        try:
            yield number, [read_at(run, Place(*place)) for _, *place in listed]
        except UnknownFormat:
            raise
        except (FileNotFoundError, ValueError) as error:
            logger.warning("left out group %d of %s: %s", number, run, error)


def _groups(run: Path) -> tuple[str, Estimator, Iterator[tuple[int, list[SavedRollout]]]]:
    """Return a run's id, its estimator, and its complete groups by their numbers. Without a journal, as
    beside copied rollouts, the groups come from the rollouts; of several in one seat the last counts."""
    if (run / FILE_NAME).exists():
        with Journal.reading(run) as db:
            known = dict(db.execute("SELECT key, value FROM run"))
            made = "number IN (SELECT number FROM groups WHERE state NOT IN (?, ?, ?, ?))"
            query = f"SELECT number, place, size, crc FROM members WHERE {made} ORDER BY number, member"
            members = db.execute(query, UNMADE).fetchall()
        return known["id"], Estimator.from_journal(known), _read(run, members)
    seats: dict[int, dict[int, Place]] = {}
    for at, rollout in read_places(run):
        group, member = rollout.seat.group, rollout.seat.member
        if group is not None and member is not None and not rollout.seat.evaluating:
            seats.setdefault(group, {})[member] = at
    places = [(number, *astuple(at)) for number, seated in sorted(seats.items()) for _, at in sorted(seated.items())]
    return run.name, USUAL, _read(run, places)
