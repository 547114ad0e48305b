"""What becomes of complete groups: into the outbox for a trainer, or into a file."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import orjson

from envs.delivery.packing import RowPacker
from envs.delivery.rows import ScoredGroup
from envs.records.disk import append_line, until_room
from envs.running.group import Group
from envs.running.outbox import Outbox
from envs.running.run import Run
from envs.types import GroupState
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

RESAMPLES = 2
"""How often a group whose rewards are all equal is made anew, where that is wanted."""


class GroupFile:
    """A JSONL file of groups, each once, in the form in which the trainer API takes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = _group_ids(path)

    async def append(self, scored: ScoredGroup) -> None:
        """Write a group that is not there yet, waiting while the disk is full."""
        if scored.origin.group_id in self._written:
            return
        line = orjson.dumps(scored.to_wire())
        await until_room(self.path, lambda: append_line(self.path, line))
        self._written.add(scored.origin.group_id)


class FileSink:
    """Writes every group to a file."""

    def __init__(self, run: Run, file: GroupFile) -> None:
        self._run = run
        self._file = file

    async def take(self, group: Group, scored: ScoredGroup) -> None:
        """See `Sink`."""
        await finish(self._take(group, scored))

    async def _take(self, group: Group, scored: ScoredGroup) -> None:
        await self._file.append(scored)
        await group.close(GroupState.SAVED, f"written to {self._file.path.name}", self._file.path.name)
        self._run.metrics.count_group(signal=scored.has_signal)


class TrainerSink:
    """Puts groups from which something can be learnt into the outbox.

    file: where every group is written as well; None for nowhere.
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
        if self._file is not None:
            await self._file.append(scored)
        equal = self._run.config.equal_rewards
        if not scored.rows:
            reasons = "; ".join(sorted({row.reason for row in scored.dropped}))
            await group.close(GroupState.EMPTY, f"no row is left: {reasons}")
        elif scored.has_signal or equal == "send":
            await self._store(group, scored)
        elif equal == "resample" and group.resampled < RESAMPLES:
            await group.restart()
            self._run.queue.put_back(group)
            return
        else:
            logger.info("group of task %s is dropped: all rewards are equal", group.task.id)
            await group.close(GroupState.EQUAL, f"all rewards are {scored.rows[0].score:g}")
        self._run.metrics.count_group(signal=scored.has_signal)

    async def _store(self, group: Group, scored: ScoredGroup) -> None:
        async with self._packing:
            packets, waiting = await asyncio.to_thread(self._packer.add, scored, step=scored.origin.step or 0)
            await self._outbox.add(group, packets, waiting)


def _group_ids(path: Path) -> set[str]:
    """The groups that a file holds; lines that are torn count as missing."""
    found = set()
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                try:
                    found.add(orjson.loads(line)["generation_params"]["group_id"])
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    logger.warning("a torn line in %s is skipped", path)
    return found
