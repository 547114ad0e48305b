"""Wait for an answer, and say so: a server that hangs is not waited for in silence, a build not for ever."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from sandboxes.base import ImageUnbuildable

logger = logging.getLogger(__name__)

REMIND_S = 5.0
"""Seconds between two sentences."""
BUILD_S = 7200.0
"""How long the build of an image may take: a command in a Dockerfile may wait for ever."""

T = TypeVar("T")


async def patiently(question: Awaitable[T], where: str, most_s: float | None = None, remind_s: float = REMIND_S) -> T:
    """Await the answer to a question, and log the waiting.

    where: its place, for the log. most_s: of the wait, in seconds; None where the question has a limit of its own.

    Raises TimeoutError, and the question's errors."""
    task, began = asyncio.ensure_future(question), time.monotonic()
    try:
        while not (await asyncio.wait({task}, timeout=remind_s if most_s is None else min(remind_s, most_s)))[0]:
            waited = time.monotonic() - began
            if most_s is not None and waited >= most_s:
                raise TimeoutError
            most = "" if most_s is None else f", up to {most_s:g} s"
            logger.warning("%s has not answered for %.0f s; waiting for it%s", where, waited, most)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def build_limit(context: Path) -> AsyncIterator[None]:
    """Cancel the block, which builds the image of a folder, after `BUILD_S`. Raises ImageUnbuildable then."""
    try:
        async with asyncio.timeout(BUILD_S) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ImageUnbuildable(
            f"building {context} did not end within {BUILD_S:g} s: see which command of its Dockerfile waits, or build "
            "the image yourself and name it as the task's docker_image"
        ) from error
