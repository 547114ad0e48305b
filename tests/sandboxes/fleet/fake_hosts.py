"""Docker hosts that are not there: what a fleet asks of each host's backend, in a few lines."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sandboxes.base import DaemonUnavailable, ImageMissing, SandboxError, SandboxSpec


class FakeHost:
    """A machine: `down` it refuses all, and while it `hangs` questions wait."""

    def __init__(self, images: set[str] | None = None, processors: int = 8) -> None:
        self.images = {"image"} if images is None else images
        self.processors = processors
        self.down = False
        self.hangs: asyncio.Event | None = None
        self.problem: SandboxError | None = None
        self.opened = 0
        self.sandboxes: set[str] = set()
        """Of whichever backend; those of a lost one stay until it is back."""


class FakeBackend:
    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.owner = SimpleNamespace(id=uuid.uuid4().hex)
        self.client = SimpleNamespace(version=self._version, system=SimpleNamespace(info=self._info))

    async def _version(self) -> dict[str, str]:
        self._reach()
        if self.host.hangs is not None:
            await self.host.hangs.wait()
        return {}

    async def _info(self) -> dict[str, int]:
        self._reach()
        return {"NCPU": self.host.processors, "MemTotal": 64 * 2**30}

    def _reach(self) -> None:
        if self.host.down:
            raise DaemonUnavailable("it is down")

    async def __aenter__(self) -> FakeBackend:
        self._reach()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self.host.down:
            self.host.sandboxes = {name for name in self.host.sandboxes if not name.startswith(self.owner.id)}

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        self._reach()
        if name not in self.host.images:
            raise ImageMissing(str(name))
        return str(name)

    def prepare(self, spec: SandboxSpec, count: int) -> None:
        return

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Any]:
        self._reach()
        if self.host.problem is not None:
            raise self.host.problem
        self.host.opened += 1
        name = f"{self.owner.id} {self.host.opened}"
        self.host.sandboxes.add(name)
        try:
            yield SimpleNamespace(host=self.host)
        finally:
            if not self.host.down:
                self.host.sandboxes.discard(name)


async def remove_owned(client: Any, owner_id: str) -> None:
    """Stand for the function of that name."""
    host = client.version.__self__.host
    host.sandboxes = {name for name in host.sandboxes if not name.startswith(owner_id)}
