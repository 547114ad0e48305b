"""Backends in an event loop of their own, for callers without one, or with one for each of their tasks."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from sandboxes.base import Backend
from sandboxes.loop_thread import LoopThread
from sandboxes.registry import load_backend
from sandboxes.shielding import await_shared

T = TypeVar("T")


class BackgroundLoop:
    """A thread with an event loop. Its backends stay open until the process ends."""

    def __init__(self) -> None:
        self._open = AsyncExitStack()
        self._backends: dict[str, asyncio.Task[Backend]] = {}
        self._thread = LoopThread()
        self._thread.start()
        # What the event loop's own threads do ends before anything of `atexit` runs; this goes before that.
        threading._register_atexit(self.close)  # type: ignore[attr-defined]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and return its result."""
        return self._thread.run(work)

    def start(self, work: Coroutine[Any, Any, T]) -> None:
        """Start a coroutine there, for callers that can't wait."""
        self._thread.submit(work)

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, awaited from another event loop. A cancellation cancels it, and waits for its end."""
        return await self._thread.run_async(work)

    async def backend(self, name: str) -> Backend:
        """Return the backend of this name, opened by the first call. To be awaited there."""
        known = self._backends.get(name)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            opening = self._open.enter_async_context(load_backend(name))
            known = self._backends[name] = asyncio.create_task(opening)
        return await await_shared(known)

    def close(self) -> None:
        """Close the backends, with all remaining sandboxes."""
        if self._thread.is_running:
            self.run(self._open.aclose())
            self._thread.close()


@functools.cache
def background_loop() -> BackgroundLoop:
    """Return the `BackgroundLoop` of this process."""
    return BackgroundLoop()
