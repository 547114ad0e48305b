"""Backends in an event loop of their own, for callers without one, or with one for each of their tasks."""

from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import AsyncExitStack

from sandboxes.base import Backend
from sandboxes.loop_thread import LoopThread
from sandboxes.registry import load_backend
from sandboxes.shielding import await_shared


class BackgroundLoop(LoopThread):
    """A thread with an event loop. Its backends stay open until the process ends."""

    def __init__(self) -> None:
        super().__init__()
        self._open = AsyncExitStack()
        self._backends: dict[str, asyncio.Task[Backend]] = {}
        self.start()
        # What the event loop's own threads do ends before anything of `atexit` runs; this goes before that.
        threading._register_atexit(self.close)  # type: ignore[attr-defined]

    async def backend(self, name: str) -> Backend:
        """Return the backend of this name, opened by the first call. To be awaited there."""
        known = self._backends.get(name)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            opening = self._open.enter_async_context(load_backend(name))
            known = self._backends[name] = asyncio.create_task(opening)
        return await await_shared(known)

    def close(self) -> None:
        """Close the backends, with all remaining sandboxes."""
        if self.is_running:
            self.run(self._open.aclose())
            super().close()


@functools.cache
def background_loop() -> BackgroundLoop:
    """Return the `BackgroundLoop` of this process."""
    return BackgroundLoop()
