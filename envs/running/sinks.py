"""The destinations of complete groups: the outbox for a trainer, a file, or a trainer in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from envs.delivery.exports import Export
from envs.delivery.packing import RowPacker
from envs.delivery.rows import ScoredGroup
from envs.records.disk import append_line, close_line, retry_until_space
from envs.running.group import Group, count_written, unfinished_groups
from envs.running.outbox import Outbox
from envs.running.run import Run
from envs.types import Failure, GroupState
from sandboxes.plurals import plural
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

RESAMPLES = 2
"""How often a group with equal rewards is made again, or grows by its size, if wanted."""


class GroupFile:
    """A JSONL file of groups, each once, in the trainer API's form. Made by `open_group_file`.

    unfinished: the places in it of groups that are not decided yet, by their ids.
    """

    def __init__(self, run: Run, path: Path, unfinished: Mapping[str, int]) -> None:
        self.path = path
        self._run = run
        self._unfinished = dict(unfinished)
        self._writing = asyncio.Lock()

    async def append(self, scored: ScoredGroup) -> None:
        """Write a group once, waiting while the disk is full. Raises OSError."""
        name = scored.origin.group_id
        if name in self._unfinished:
            return
        line = await asyncio.to_thread(lambda: orjson.dumps(scored.to_wire()))
        async with self._writing:
            self._unfinished[name] = _size(self.path)
            try:
                env = self._run.env
                write = partial(append_line, self.path, line, flush=True)  # as is what the journal will say of it
                await retry_until_space(self.path, write, lambda: env.stopping.requested, home=env.run_dir)
            except OSError:
                del self._unfinished[name]
                raise

    async def settle(self, scored: ScoredGroup) -> None:
        """Note that the state of a group says that it is written."""
        self._unfinished.pop(scored.origin.group_id, None)
        # A later start looks at what stands behind this place only: the file may be very large. It ends no sooner.
        place = min(self._unfinished.values(), default=_size(self.path))
        await self._run.journal.replace(_place_key(self.path), str(place))


async def open_group_file(run: Run, path: Path) -> GroupFile:
    """Open a run's file of groups, new or old, and find its undecided groups."""
    await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
    size = _size(path)
    since = int(await run.journal.remember(_place_key(path), "0"))
    if size < max(since, await count_written(run.journal, path.name)):
        logger.warning(
            "%s is missing or was cut: groups that this run wrote to it are not there. Bring it back from a copy; "
            "`export` has their rollouts",
            path,
        )
    names = {run.group_id(left.number) for left in await unfinished_groups(run.journal)}
    return GroupFile(run, path, await asyncio.to_thread(_places, path, since, names))


class FileSink:
    """Writes every group to a file."""

    def __init__(self, run: Run, file: GroupFile) -> None:
        self._run = run
        self._file = file

    @classmethod
    @asynccontextmanager
    async def to(cls, path: Path, run: Run) -> AsyncIterator[FileSink]:
        """Open one, as `feed` wants it: `partial(FileSink.to, path)`."""
        yield cls(run, await open_group_file(run, path))

    async def take(self, group: Group, scored: ScoredGroup) -> None:
        """See `Sink`."""
        await finish(self._take(group, scored))

    async def _take(self, group: Group, scored: ScoredGroup) -> None:
        await self._file.append(scored)
        await group.close(GroupState.SAVED, f"written to {self._file.path.name}", self._file.path.name)
        await self._file.settle(scored)
        count(self._run, group, scored)


class TrainerSink:
    """Puts groups with something to learn into the outbox.

    file: every group is written there as well; None for nowhere.
    """

    def __init__(self, run: Run, outbox: Outbox, packer: RowPacker, file: GroupFile | None) -> None:
        self._run = run
        self._outbox = outbox
        self._packer = packer
        self._file = file
        self._packing = asyncio.Lock()

    async def take(self, group: Group, scored: ScoredGroup) -> None:
        """See `Sink`."""
        await finish(self._take(group, scored))

    async def _take(self, group: Group, scored: ScoredGroup) -> None:
        if await make_again_if_equal(self._run, group, scored):
            return
        if self._file is not None:
            await self._file.append(scored)
        if not await close_if_useless(self._run, group, scored):
            await self._store(group, scored)
        if self._file is not None:
            await self._file.settle(scored)
        count(self._run, group, scored)

    async def _store(self, group: Group, scored: ScoredGroup) -> None:
        async with self._packing:
            step = scored.origin.step or 0
            stale = self._packer.take_stale(step, self._run.config.max_stale_steps)
            packets, waiting = await asyncio.to_thread(self._packer.add, scored, step=step)
            await self._outbox.add(group, packets, waiting, stale)
            for packet in stale:
                self._run.metrics.count_failure(Failure.TRAINER)
                logger.error("a row is not sent but kept in aside/: it waited for others since step %d", packet.step)


@dataclass(frozen=True, slots=True)
class TrainerGroup(Export):
    """A judged group for a trainer: its rows, its rollouts, and its name for the confirmation."""

    name: str


class HandOverSink:
    """Hands groups with something to learn to a trainer in this process, which confirms them later.

    hand: takes a group in, in this event loop, and returns at once.
    """

    def __init__(self, run: Run, hand: Callable[[TrainerGroup], object]) -> None:
        self._run = run
        self._hand = hand

    @classmethod
    @asynccontextmanager
    async def to(cls, hand: Callable[[TrainerGroup], object], run: Run) -> AsyncIterator[HandOverSink]:
        """Open one, as `feed` wants it: `partial(HandOverSink.to, hand)`."""
        yield cls(run, hand)

    async def take(self, group: Group, scored: ScoredGroup) -> None:
        """See `Sink`."""
        await finish(self._take(group, scored))

    async def _take(self, group: Group, scored: ScoredGroup) -> None:
        if await make_again_if_equal(self._run, group, scored):
            return
        if not await close_if_useless(self._run, group, scored):
            self._hand(await give(self._run, group, scored))
        else:
            count(self._run, group, scored)


def count(run: Run, group: Group, scored: ScoredGroup) -> None:
    """Count a finished group. A single rollout has no others to differ from: another trainer's group is of several."""
    run.metrics.count_group(signal=scored.has_signal if len(group.members) > 1 else None)


async def give(run: Run, group: Group, scored: ScoredGroup) -> TrainerGroup:
    """Note that a complete group is taken, and return the trainer's form of it."""
    if group.is_open:
        await group.close(GroupState.TAKEN, "the trainer took it, and has not confirmed it yet")
        count(run, group, scored)
    return TrainerGroup(scored, {rollout.id: rollout for rollout in group.members.values()}, run.name_of(group))


async def make_again_if_equal(run: Run, group: Group, scored: ScoredGroup) -> bool:
    """Tell whether a complete group with equal rewards is made again, or grows. Then it is put back into the queue."""
    equal = run.config.equal_rewards
    if not scored.rows or scored.has_signal:
        return False
    if equal == "resample" and group.resampled < RESAMPLES:
        await group.restart()
    elif equal == "top_up" and len(group.members) < (1 + RESAMPLES) * run.config.group_size:
        group.grow(len(group.members) + -(-run.config.group_size // 2))
    else:
        return False
    run.queue.put_back(group)
    return True


async def close_if_useless(run: Run, group: Group, scored: ScoredGroup) -> bool:
    """Tell whether nothing is to be learnt from a complete group. Then it is closed with the reason."""
    if not scored.rows:
        reasons = "; ".join(sorted({row.reason for row in scored.dropped}))
        await group.close(GroupState.EMPTY, f"no row is left: {reasons}")
    elif scored.has_signal or run.config.equal_rewards == "send":
        return False
    else:
        why = _equal_reason(scored, run.config.estimator)
        logger.info("group of task %s is dropped: %s", group.task.id, why)
        await group.close(GroupState.EQUAL, why)
    return True


def _equal_reason(scored: ScoredGroup, estimator: str) -> str:
    """Return why no advantage of a group differs from 0."""
    if estimator == "none" and len({row.score for row in scored.rows}) > 1:
        return "its rewards differ, but --env.estimator none makes no advantage of that; give turns their own"
    lost = len({row.rollout_id for row in scored.dropped if row.segment is not None})
    left = f", without {plural(lost, 'rollout')} with rows unlike the record" if lost else ""
    return f"all rewards are {scored.rows[0].score:g}{left}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _place_key(path: Path) -> str:
    return f"written:{path.absolute()}"


def _places(path: Path, since: int, names: Collection[str]) -> dict[str, int]:
    """Return the places of groups in the part of a file after `since`; torn lines count as missing."""
    close_line(path)
    found: dict[str, int] = {}
    if not path.exists():
        return found
    with path.open("rb") as file:
        file.seek(since)
        place = since
        for line in file:
            try:
                name = orjson.loads(line)["generation_params"]["group_id"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                logger.warning("a torn line at byte %d of %s is skipped", place, path)
            else:
                if name in names:
                    found[name] = place
            place += len(line)
    return found
