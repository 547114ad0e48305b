"""A clean source tree in which files are written as an agent would, without a sandbox for each attempt."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import TypeVar

from envs.judging.changes import Changes, compare
from envs.judging.specs import agent_spec
from envs.judging.tree import Scan, tree_of
from envs.types import Task
from sandboxes.base import Backend
from sandboxes.trees import read_archive

T = TypeVar("T")


class CleanTree:
    """The tree of a task's image. `read` takes it from a sandbox, once."""

    def __init__(self, archive: bytes, root: str, protected: Sequence[str]) -> None:
        self._archive, self._root, self._protected = archive, root, protected
        self._start = tree_of(archive, root)

    @classmethod
    async def read(cls, backend: Backend, task: Task, image: str) -> CleanTree:
        async with backend.open(agent_spec(task, image)) as sandbox:
            archive = await sandbox.download(sandbox.workdir)
            return cls(archive, sandbox.workdir, task.hidden.protected)

    def written(self, files: Mapping[str, str], *, mode: int = 0o644) -> Changes:
        """The changes of an agent that wrote these files, in folders that are there."""
        with_files = io.BytesIO()
        with (
            tarfile.open(fileobj=io.BytesIO(self._archive)) as source,
            tarfile.open(fileobj=with_files, mode="w", format=tarfile.GNU_FORMAT) as target,
        ):
            for member in source:
                if member.name.removeprefix("./") not in files:
                    target.addfile(member, source.extractfile(member) if member.isreg() else None)
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(text.encode()), mode
                target.addfile(info, io.BytesIO(text.encode()))
        scan = Scan(self._root, start=self._start)
        read_archive(io.BytesIO(with_files.getvalue()), scan)
        return compare(self._start, scan.done(), self._protected)


async def a_few_at_a_time(attempts: Iterable[Coroutine[object, object, T]], limit: int = 3) -> list[T]:
    """Return what all attempts come to, of which `limit` have a sandbox at a time."""
    turn = asyncio.Semaphore(limit)

    async def one(attempt: Coroutine[object, object, T]) -> T:
        async with turn:
            return await attempt

    return await asyncio.gather(*map(one, attempts))
