"""Wait for an inference server's answer for as long as the server lives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from atropos_agent.engines.errors import EngineDown

T = TypeVar("T")


async def cancel_when_dead(
    work: Awaitable[T], alive: Callable[[], Awaitable[bool]], *, every_s: float, label: str
) -> T:
    """Await an answer while the server lives: a slow one is waited for, a hanging one is not.

    alive: asks the server, after each `every_s` seconds without an answer. label: the server's name in
    messages. Raises EngineDown.
    """
    watches: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(None) as limit:
            # A task only for answers that are slow: most are not.
            look = asyncio.get_running_loop().call_later(
                every_s, lambda: watches.append(asyncio.create_task(_end_when_dead(limit, alive, every_s)))
            )
            try:
                return await work
            finally:
                look.cancel()
    except TimeoutError as error:
        raise EngineDown(f"{label} has stopped answering") from error
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def _end_when_dead(limit: asyncio.Timeout, alive: Callable[[], Awaitable[bool]], every_s: float) -> None:
    """Ask the server again and again whether it lives; when it does not, let the time be over."""
    while True:
        if not await alive():
            break
        await asyncio.sleep(every_s)
    limit.reschedule(asyncio.get_running_loop().time())
