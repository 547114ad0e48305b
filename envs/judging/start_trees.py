"""The judged paths as each clean image has them, for comparison with the agent's work."""

from __future__ import annotations

import asyncio
import logging
import tarfile

from envs.judging.areas import Area, Start, graded_git, graded_paths, is_ours, scan_of, scan_tree
from envs.judging.begin import begin
from envs.judging.specs import agent_spec
from envs.judging.tree import Tree
from envs.types import Failure, Hidden, InfraError, Task
from sandboxes.base import Backend, Sandbox, SandboxError
from sandboxes.shielding import await_shared

logger = logging.getLogger(__name__)

NO_TREE = (
    "its working directory is /, so only paths named in the tests or in graded_paths are judged, and there are none; "
    "name the source tree in [environment] workdir"
)


class StartTrees:
    """The contents of clean images, shared by concurrent callers. Each is read once, and again if it was not asked for
    while others of `most_paths` were."""

    def __init__(self, backend: Backend, most_paths: int = 1_000_000) -> None:
        self._backend = backend
        self._most_paths = most_paths
        self._trees: dict[object, asyncio.Task[Start]] = {}

    async def get(self, task: Task, image: str) -> Start:
        """Return the content of the task's judged paths in `image`.

        Raises InfraError when the image can't be opened or read; the next call tries again.
        """
        hidden = task.hidden
        try:
            made = await self._backend.image_id(image)  # one that was made again may hold something else
        except SandboxError as error:
            raise InfraError(Failure.SANDBOX, f"could not look for {image}: {error}") from error
        graded = tuple(hidden.graded), hidden.graded_alone, hidden.own is None
        key = made, image, task.workdir, graded, task.service, task.health
        reading = self._trees.pop(key, None)
        if reading is None or (reading.done() and (reading.cancelled() or reading.exception() is not None)):
            reading = asyncio.create_task(self._read(task, image))
        self._trees[key] = reading  # the latest is last
        start = await await_shared(reading)
        self._forget()
        return start

    def _forget(self) -> None:
        """Let go of the trees that were asked for longest ago, as far as all are too large together."""
        left = self._most_paths
        for key, reading in reversed(self._trees.copy().items()):
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                left -= reading.result().paths
                if left < 0:
                    del self._trees[key]

    async def _read(self, task: Task, image: str) -> Start:
        try:
            async with self._backend.open(agent_spec(task, image)) as sandbox:
                await begin(sandbox, task)
                return await _read_start(sandbox, task.hidden)
        except (SandboxError, tarfile.TarError, OSError) as error:
            raise InfraError(Failure.SANDBOX, f"could not read the source tree of {image}: {error}") from error


async def _read_start(sandbox: Sandbox, hidden: Hidden) -> Start:
    """Return the content of the task's judged paths in a clean sandbox. Raises SandboxError, TarError and OSError, and
    InfraError of kind "task" when the working directory can't serve as a source tree."""
    elsewhere: dict[str, Area | None] = dict.fromkeys(graded_paths(hidden, sandbox.workdir))
    for path in [] if hidden.own is not None else list(elsewhere):
        try:
            found = await scan_of(sandbox, path, git=True)
            elsewhere[path] = None if found is None else Area(found[0], found[1].tree)
        except (tarfile.TarError, OSError, ValueError) as error:
            if is_ours(error):
                raise
            logger.warning("the image's %s is not judged: %s", path, error)
            del elsewhere[path]
    is_machine = sandbox.workdir.strip("/") == ""
    if is_machine and not hidden.graded:
        raise InfraError(Failure.TASK, NO_TREE)
    tree: Tree | None = None
    if not (hidden.graded_alone or is_machine):
        try:
            tree = (await scan_tree(sandbox, sandbox.workdir, git=graded_git(hidden), start=None)).tree
        except (OSError, ValueError) as error:
            if is_ours(error):
                raise
            raise InfraError(
                Failure.TASK, f"the image's {sandbox.workdir} can't be the source tree: {error}"
            ) from error
    return Start(tree, elsewhere)
