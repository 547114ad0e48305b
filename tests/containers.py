"""Containers that tests use one after the other, as to start and to remove one takes longer than most of these tests.

Tests that use one share the event loop of the session with it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Self

from sandboxes.base import Backend, Sandbox, SandboxDied, SandboxSpec


class Container:
    """A container that each test finds without files and processes of the one before.

    backend: not entered yet.
    """

    def __init__(self, backend: Backend, spec: SandboxSpec) -> None:
        self._backend = backend
        self._spec = spec
        self._open = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._of_it = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self._backend)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._of_it.aclose()
        await self._open.aclose()

    async def emptied(self) -> Sandbox:
        """Return it; another one where a test has stopped it."""
        if self._sandbox is not None:
            try:
                await self._sandbox.exec("kill -9 -1", cwd="/", user="root")
                command = f"rm -rf {self._spec.workdir} /tmp/* /tmp/.[!.]* && mkdir {self._spec.workdir}"
                done = await self._sandbox.exec(command, cwd="/", user="root")
                assert done.ok, done.output
            except SandboxDied:
                await self._of_it.aclose()
                self._sandbox = None
        if self._sandbox is None:
            self._sandbox = await self._of_it.enter_async_context(self._backend.open(self._spec))
        return self._sandbox
