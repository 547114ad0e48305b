"""Backends in an event loop of their own, for callers without one, or with one for each of their tasks."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from sandboxes.base import Backend
from sandboxes.registry import load_backend

T = TypeVar("T")


class Beside:
    """A thread with an event loop. Its backends stay open until the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._open = AsyncExitStack()
        self._backends: dict[str, asyncio.Task[Backend]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandboxes", daemon=True)
        self._thread.start()
        # What the event loop's own threads do ends before anything of `atexit` runs; this goes before that.
        threading._register_atexit(self.close)  # type: ignore[attr-defined]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work: Coroutine[Any, Any, T]) -> None:
        """Do something there, for whoever can't wait."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    async def done(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something there, awaited from another event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def backend(self, name: str) -> Backend:
        """Return the backend of this name, opened by the first call. To be awaited there."""
        known = self._backends.get(name)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            opening = self._open.enter_async_context(load_backend(name))
            known = self._backends[name] = asyncio.create_task(opening)
        return await asyncio.shield(known)

    def close(self) -> None:
        """Close the backends, with all remaining sandboxes."""
        if self._loop.is_closed():
            return
        self.do(self._open.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@functools.cache
def beside() -> Beside:
    """Return the `Beside` of this process."""
    return Beside()
