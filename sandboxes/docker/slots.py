"""Slots: a few starts of sandboxes at a time, and none once their backend was left."""

from __future__ import annotations

import asyncio
from typing import Self

from sandboxes.base import SandboxDied


class Slots:
    """Lets a fixed number of starts go on at once. Use it as `async with`: it raises SandboxDied after `close`.

    closed: whether no more begin. turn: the semaphore for removals, which go on even then.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.turn = asyncio.Semaphore(most)
        self.closed = False

    async def __aenter__(self) -> Self:
        await self.turn.acquire()
        if self.closed:
            self.turn.release()
            raise SandboxDied("the sandbox was not started: its backend was left")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.turn.release()

    @property
    def is_full(self) -> bool:
        """Return whether a start would have to wait."""
        return self.turn.locked()

    async def close(self) -> None:
        """Wait for all running starts; no new one begins."""
        for _ in range(self._most):
            await self.turn.acquire()
        self.closed = True
        for _ in range(self._most):
            self.turn.release()
