"""Wait for an answer, and say so: a server that hangs is not waited for in silence."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TypeVar

logger = logging.getLogger(__name__)

REMIND_S = 5.0
"""Seconds between two sentences."""

T = TypeVar("T")


async def patiently(question: Awaitable[T], where: str, most_s: float | None = None, remind_s: float = REMIND_S) -> T:
    """Await the answer to a question, and log the waiting.

    where: its place, for the log. most_s: of the wait, in seconds; None where the question has a limit of its own.

    Raises TimeoutError, and the question's errors."""
    asked, began = asyncio.ensure_future(question), time.monotonic()
    try:
        while not (await asyncio.wait({asked}, timeout=remind_s if most_s is None else min(remind_s, most_s)))[0]:
            waited = time.monotonic() - began
            if most_s is not None and waited >= most_s:
                raise TimeoutError
            most = "" if most_s is None else f", up to {most_s:g} s"
            logger.warning("%s has not answered for %.0f s; waiting for it%s", where, waited, most)
        return asked.result()
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
