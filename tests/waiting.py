"""Waiting for what has no event to wait for."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

PATIENCE_S = 120.0
"""A machine that is busy makes all late; a test that hangs is ended by pytest."""


def in_time(condition: Callable[[], object]) -> object:
    """Wait until a condition holds, and return its last value. It stops this thread; beside an event loop: `until`."""
    deadline = time.monotonic() + PATIENCE_S
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds


async def until(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Wait until a condition holds, of which any value may tell, at once or when it is awaited."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            await asyncio.sleep(0.02)
