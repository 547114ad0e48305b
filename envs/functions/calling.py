"""Call a function of the user's: on the event loop, in a thread, or in a process of its own; until it has hung."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from envs.functions.arguments import LLM
from envs.functions.child import Child
from envs.functions.work import Work
from sandboxes.shielding import call_in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")

ENDING_S = 5.0
"""Time for a cancelled function to end, in seconds."""


class FunctionTimeoutError(RuntimeError):
    """A function was not over in its time."""


async def call(work: Work, given: Mapping[str, Any], limit_s: float, sampling_s: Callable[[], float]) -> Any:
    """Return the function's value. Raises its exceptions, and FunctionTimeoutError.

    given: its parameters. limit_s: its seconds, beside those of its waits for replies. sampling_s: the
    seconds of these so far. A function that hangs in a thread can't be ended: it is left, and its model does not
    answer any more. In a process of its own it is killed with everything started by it."""
    if not work.process:
        remedy = "give the decorator process=True, so that it can be killed"
        return await await_value(work.function, given, limit_s, sampling_s, name=work.name, remedy=remedy)
    llm: LLM = given["llm"]
    child = Child(work.function, given)
    try:
        asking = {"reward": llm.reward}
        return await await_value(child.run, asking, limit_s, sampling_s, name=work.name, remedy="it was killed")
    finally:
        child.kill()


async def await_value(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    limit_s: float,
    sampling_s: Callable[[], float] = lambda: 0.0,
    *,
    name: str = "",
    remedy: str = "it may wait for what never comes",
) -> Any:
    """Return a function's value: of an async one on the event loop, of others in a thread. Raises its exceptions, and
    FunctionTimeoutError. name, remedy: for that. See `call`."""
    if inspect.iscoroutinefunction(function):
        running: asyncio.Future[Any] = asyncio.ensure_future(_await_without_exit(function(**given)))
    else:
        running = call_in_thread(lambda: function(**given))
    began, name = time.monotonic(), name or getattr(function, "__name__", "the function")
    try:
        while True:
            while not running.done():
                left = limit_s - (time.monotonic() - began - sampling_s())
                if left <= 0:
                    raise FunctionTimeoutError(f"{name} was not over after {limit_s:g} s of its own time; {remedy}")
                await asyncio.wait({running}, timeout=None if left == math.inf else left)
            result = running.result()
            if not inspect.isawaitable(result):
                return result
            running = asyncio.ensure_future(_await_without_exit(result))  # a sync function may have called an async one
    finally:
        await _end(running, name)


async def _await_without_exit(call: Awaitable[T]) -> T:
    """Await a call. Its SystemExit, with which asyncio would end the whole run, becomes an error."""
    try:
        return await call
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error


async def _end(running: asyncio.Future[Any], name: str) -> None:
    """End the call still running, and wait for it if possible."""
    if running.done():
        return
    running.cancel()
    await asyncio.wait({running}, timeout=ENDING_S)
    if not running.done():
        logger.warning("%s does not end although it was cancelled; it is left behind", name)
