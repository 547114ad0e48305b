"""Waiting for what has no event to wait for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

PATIENCE_S = 120.0
"""A machine that is busy makes all late; a test that hangs is ended by pytest."""


async def until(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Wait until a condition holds, of which any value may tell, at once or when it is awaited."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            await asyncio.sleep(0.02)
