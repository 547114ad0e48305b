"""A thread with private mounts, which are gone with this process however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Self, TypeVar

from sandboxes.docker.crun import kernel

T = TypeVar("T")

_KINDS = {"mnt": kernel.NEW_MOUNTS, "ipc": kernel.NEW_IPC, "net": kernel.NEW_NET}


class MountNamespace:
    """A private mount namespace, and its one thread; used as `async with`."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "sandbox mounts")
        self._own: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        """Raise OSError if this process may not have mounts of its own."""
        with ExitStack() as undo:
            undo.callback(self._thread.shutdown, wait=False)
            await self.run(self._enter)
            undo.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        for namespace in self._own.values():
            os.close(namespace)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do something in the thread, one thing at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def _enter(self) -> None:
        kernel.unshare(kernel.NEW_MOUNTS)
        # What the host unmounts is unmounted here as well; nothing goes the other way.
        kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.SLAVE)
        # Beside version 1 its controllers are what crun takes, and complains where version 2 has others.
        with contextlib.suppress(OSError):
            kernel.unmount("/sys/fs/cgroup/unified")
        self._own = {name: _open_namespace("thread-self", name) for name in _KINDS}

    @contextmanager
    def enter_process(self, process: int, *more: str) -> Iterator[None]:
        """Be among the mounts of a process, and at its root, for the block. To be used in the thread.

        more: other namespaces of the process to be in, as in its folder `ns`.
        """
        names = ("mnt", *more)
        with ExitStack() as stack:
            theirs = {}
            for name in names:
                theirs[name] = _open_namespace(str(process), name)
                stack.callback(os.close, theirs[name])
            for name in names:
                stack.callback(kernel.enter, self._own[name], _KINDS[name])
                kernel.enter(theirs[name], _KINDS[name])
            yield


def _open_namespace(process: str, name: str) -> int:
    return os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
