"""A sandbox around another one, for backends that watch or change the actions of another backend's sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from sandboxes.base import ExecResult, Process, Sandbox, Session, Streams
from sandboxes.trees import Reader


class WrappedSession(Session):
    """Passes everything on to the session `inner`. A subclass overrides single methods."""

    def __init__(self, inner: Session) -> None:
        self.inner = inner

    async def run(self, command: str, **options: Any) -> ExecResult:
        return await self.inner.run(command, **options)

    async def close(self) -> None:
        await self.inner.close()


class WrappedSandbox(Sandbox):
    """Passes everything on to the sandbox `inner`. A subclass overrides single methods.

    Commands come by `exec`, by `start` and by the `run` of a session. Forks are the inner sandbox's, not wrapped."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner
        self.workdir = inner.workdir

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        return await self.inner.exec(command, **options)

    def start(self, command: str | Sequence[str], **options: Any) -> AbstractAsyncContextManager[Process]:
        return self.inner.start(command, **options)

    def connect(self, target: int | str, *, timeout: float = 10.0) -> AbstractAsyncContextManager[Streams]:
        return self.inner.connect(target, timeout=timeout)

    async def read_file(self, path: str, *, max_bytes: int = 16 * 2**20) -> bytes:
        return await self.inner.read_file(path, max_bytes=max_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self.inner.write_file(path, data, mode=mode)

    async def upload(self, archive: bytes, path: str) -> None:
        await self.inner.upload(archive, path)

    async def download(self, path: str, *, max_bytes: int = 256 * 2**20) -> bytes:
        return await self.inner.download(path, max_bytes=max_bytes)

    async def read_tree(self, path: str, make: Callable[[], Reader], *, skip: Collection[str] = ()) -> Reader:
        return await self.inner.read_tree(path, make, skip=skip)

    async def stop(self) -> None:
        await self.inner.stop()

    async def session(
        self, *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Session:
        return await self.inner.session(cwd=cwd, env=env, user=user)

    async def reset(self) -> None:
        await self.inner.reset()

    def door(self, name: str) -> str:
        return self.inner.door(name)

    async def overran(self) -> str | None:
        return await self.inner.overran()

    async def host_out_of_memory(self) -> bool:
        return await self.inner.host_out_of_memory()

    def fork(self, count: int) -> AbstractAsyncContextManager[Sequence[Sandbox]]:
        return self.inner.fork(count)
