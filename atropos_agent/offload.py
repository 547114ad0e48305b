"""Work on long replies, kept off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG = 4096
"""Tokens of a long reply: from this length on, reading it may take longer than others should wait (50 ms for hostile
text)."""


async def offload(work: Callable[[], T], tokens: int) -> T:
    """Do work on a reply of so many tokens, a long one's in a thread.

    A thread goes on after the caller is cancelled. By then nobody else may use the data it changes."""
    return work() if tokens < LONG else await asyncio.to_thread(work)
