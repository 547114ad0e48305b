"""The judged paths as each clean image has them, for comparison with the agent's work."""

from __future__ import annotations

import asyncio
import logging
import tarfile

from envs.judging.areas import Area, Start, graded_git, graded_paths, is_ours, scan_of
from envs.judging.specs import agent_spec
from envs.judging.tree import MAX_TREE_BYTES, Tree, tree_of
from envs.types import Failure, Hidden, InfraError, Task
from sandboxes.base import Backend, Sandbox, SandboxError
from sandboxes.shielding import shared

logger = logging.getLogger(__name__)

_KEPT = 256
"""How many images' trees are kept, those that were asked for last: one of 10,000 files takes 4 MB."""


class StartTrees:
    """The contents of clean images, each read once and shared by concurrent callers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._trees: dict[object, asyncio.Task[Start]] = {}

    async def get(self, task: Task, image: str) -> Start:
        """Return the content of the task's judged paths in `image`.

        Raises InfraError when the image can't be opened or read; the next call tries again.
        """
        hidden = task.hidden
        try:
            made = await self._backend.image_id(image)
        except SandboxError as error:
            raise InfraError(Failure.SANDBOX, f"could not look for {image}: {error}") from error
        key = (
            made,  # one that was made again may hold something else
            image,
            task.workdir,
            tuple(hidden.graded),
            hidden.graded_alone,
            hidden.own is None,
            tuple(hidden.collect),
        )
        reading = self._trees.pop(key, None)
        if reading is None or (reading.done() and (reading.cancelled() or reading.exception() is not None)):
            reading = asyncio.create_task(self._read(task, image))
        self._trees[key] = reading
        if len(self._trees) > _KEPT:
            del self._trees[next(iter(self._trees))]
        return await shared(reading)

    async def _read(self, task: Task, image: str) -> Start:
        try:
            async with self._backend.open(agent_spec(task, image)) as sandbox:
                return await _read_start(sandbox, task.hidden)
        except SandboxError as error:
            raise InfraError(Failure.SANDBOX, f"could not open {image} to read its source tree: {error}") from error


async def _read_start(sandbox: Sandbox, hidden: Hidden) -> Start:
    """Return the content of the task's judged paths in a clean sandbox. Raises InfraError and SandboxError."""
    git = graded_git(hidden)
    elsewhere: dict[str, Area | None] = {}
    for path in graded_paths(hidden, sandbox.workdir):
        elsewhere[path] = None
        if hidden.own is not None:
            continue
        try:
            found = await scan_of(sandbox, path, git=True)
        except (tarfile.TarError, OSError, ValueError) as error:
            if is_ours(error):
                raise InfraError(Failure.SANDBOX, f"could not read the image's {path}: {error}") from error
            logger.warning("the image's %s is not judged: %s", path, error)
            del elsewhere[path]
            continue
        if found is not None:
            folder, scan = found
            elsewhere[path] = Area(folder, scan.tree)
    tree = None if hidden.graded_alone else await _read_tree(sandbox, git)
    return Start(tree, elsewhere, git, hidden.own is not None, hidden.collect)


async def _read_tree(sandbox: Sandbox, git: bool) -> Tree:
    """Return the tree below the working directory of a clean sandbox.

    Raises InfraError of kind "task" when it can't serve as a source tree.
    """
    if sandbox.workdir.strip("/") == "":
        raise InfraError(Failure.TASK, "the working directory is /; name the source tree in [environment] workdir")
    try:
        archive = await sandbox.download(sandbox.workdir, max_bytes=MAX_TREE_BYTES)
        return await asyncio.to_thread(tree_of, archive, sandbox.workdir, git)
    except (SandboxError, tarfile.TarError, OSError, ValueError) as error:
        if is_ours(error):
            raise InfraError(Failure.SANDBOX, f"could not read the image's {sandbox.workdir}: {error}") from error
        raise InfraError(Failure.TASK, f"the image's {sandbox.workdir} can't be the source tree: {error}") from error
