"""The source tree of each clean image, with which the agent's is compared."""

from __future__ import annotations

import asyncio
import tarfile

from envs.judging.specs import agent_spec
from envs.judging.tree import MAX_TREE_BYTES, Tree, tree_of
from envs.types import Failure, InfraError, Task
from sandboxes.base import Backend, Sandbox, SandboxError


class StartTrees:
    """The source trees of clean images, each read once and shared by concurrent callers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._trees: dict[tuple[str, str | None], asyncio.Task[Tree]] = {}

    async def get(self, task: Task, image: str) -> Tree:
        """Return the tree of the task's working directory in `image`.

        Raises InfraError when the image can't be opened or read; the next call tries again.
        """
        key = (image, task.workdir)
        reading = self._trees.get(key)
        if reading is None or (reading.done() and (reading.cancelled() or reading.exception() is not None)):
            reading = self._trees[key] = asyncio.create_task(self._read(task, image))
        return await asyncio.shield(reading)

    async def _read(self, task: Task, image: str) -> Tree:
        try:
            async with self._backend.open(agent_spec(task, image)) as sandbox:
                return await _read_tree(sandbox)
        except SandboxError as error:
            raise InfraError(Failure.SANDBOX, f"could not open {image} to read its source tree: {error}") from error


async def _read_tree(sandbox: Sandbox) -> Tree:
    """Return the tree below the working directory of a clean sandbox.

    Raises InfraError of kind "task" when it can't serve as a source tree.
    """
    if sandbox.workdir.strip("/") == "":
        raise InfraError(Failure.TASK, "the working directory is /; name the source tree in [environment] workdir")
    try:
        archive = await sandbox.download(sandbox.workdir, max_bytes=MAX_TREE_BYTES)
        return await asyncio.to_thread(tree_of, archive, sandbox.workdir)
    except (SandboxError, tarfile.TarError) as error:
        raise InfraError(Failure.SANDBOX, f"could not read the image's {sandbox.workdir}: {error}") from error
    except (OSError, ValueError) as error:
        raise InfraError(Failure.TASK, f"the image's {sandbox.workdir} can't be the source tree: {error}") from error
