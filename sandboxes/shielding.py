"""Leave nothing behind: clean-up that a cancellation cannot cut short, work side by side that ends together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(work: Awaitable[T]) -> T:
    """Await `work` to its end even when the caller is cancelled meanwhile; then pass the cancellation on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do works side by side. Returns their results in order.

    The first error, or a cancellation, ends the others; it is raised when they have ended. With `asyncio.gather` alone
    they would go on, and open again what the caller closes.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
