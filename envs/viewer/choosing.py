"""Choose rollouts of a run: the latest, the best and worst, those of a step, the members of a group."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.records.read import SavedRollout
from envs.runs import journal
from envs.runs.index import Index
from envs.runs.reading import NoRollout, read_rollout
from sandboxes.plurals import plural

logger = logging.getLogger(__name__)

LATEST = 20
"""Rollouts taken without a choice."""


class NothingChosen(ValueError):
    """No rollout fits the choice; the message repeats the choice."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of rollouts: so many of the latest, the best and the worst, of a step or of all; of a group; by their
    ids."""

    latest: int | None = None
    best: int | None = None
    worst: int | None = None
    step: int | None = None
    group: int | None = None
    ids: Sequence[str] = ()

    def __str__(self) -> str:
        """Return it in words."""
        named = ("of the latest", self.latest), ("with the highest rewards", self.best), ("with the lowest", self.worst)
        parts = [f"{count} {name}" for name, count in named if count]
        if self.group is not None:
            parts.append(f"the members of group {self.group}")
        if self.ids:
            parts.append(f"{len(self.ids)} by their ids")
        if self.step is not None:
            parts.append(f"of the trainer's step {self.step}" if parts else f"all of the trainer's step {self.step}")
        return ", ".join(parts) or f"the latest {LATEST}"


def choose(directory: Path, choice: Choice) -> list[SavedRollout]:
    """Return the rollouts, in the order of saving. Raises NothingChosen, RunDirectoryError."""
    with contextlib.closing(Index(directory)) as index:
        while index.advance():
            pass
        places = _places(index, choice)
    if choice.group is not None:
        group = journal.group(directory, choice.group)
        places |= {member.place for member in group.members} if group is not None else set()
    if not places:
        raise NothingChosen(f"{directory}: no rollout fits ({choice})")
    found, lost = [], []
    for place in sorted(places):
        try:
            found.append(read_rollout(directory, place))
        except NoRollout as error:
            lost.append(str(error))
    if not found:
        what = f"none of the {plural(len(places), 'chosen rollout')} can be read"
        raise NothingChosen(f"{directory}: {what}; bring its rollouts.jsonl back from a copy")
    if lost:
        logger.warning("%s of %s left out: %s", plural(len(lost), "rollout"), directory, lost[0])
    return found


def _places(index: Index, choice: Choice) -> set[int]:
    found: set[int] = set()
    where, values = ("WHERE step = ?", (choice.step,)) if choice.step is not None else ("", ())
    counts = [
        (choice.latest, "place DESC"),
        (choice.best, "reward DESC, place DESC"),
        (choice.worst, "reward, place DESC"),
    ]
    if choice.group is None and not choice.ids and not any(count for count, _ in counts):
        counts = [(LATEST if choice.step is None else -1, "place DESC")]
    with index.reading() as db:
        if db.execute("SELECT 1 FROM rollouts LIMIT 1").fetchone() is None:
            raise NothingChosen(f"{index.directory}: it has no rollout that can be read")
        for count, order in counts:
            if count:
                query = f"SELECT place FROM rollouts {where} ORDER BY {order} LIMIT ?"
                found.update(place for (place,) in db.execute(query, (*values, count)))
        for name in choice.ids:
            places = [place for (place,) in db.execute("SELECT place FROM rollouts WHERE id = ?", (name,))]
            if not places:
                raise NothingChosen(f"there is no rollout {name} in {index.directory}")
            found.update(places)
    return found
