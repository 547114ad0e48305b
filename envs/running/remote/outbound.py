"""A worker process's news for the driver, kept until the driver has them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from envs.records.redaction import Redactor
from envs.running.remote.messages import PIECE, News, RolloutPiece, Turn, WorkerLogRecord

WAIT_S = 10.0
"""How long the driver is made to wait for something new, in seconds: an answer says that the worker lives."""
GATHER_S = 0.2
"""News within so many seconds go together. The death of a worker costs the turns of this time."""
_MOST_LOGGED = 500
"""Waiting records of the log, at most; more are counted and left out."""
_LINE = 8000
"""Characters of one of them, at most."""


class Outbound:
    """News in the order of their arrival, each with a number from 1 on."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, News]] = deque()
        self._last = 0
        self._size = 0
        self._logged = self._unlogged = 0
        self._some = asyncio.Event()

    def add(self, news: News) -> None:
        """Add news for the driver."""
        if isinstance(news, WorkerLogRecord):
            if self._logged >= _MOST_LOGGED:
                self._unlogged += 1
                return
            self._logged += 1
        self._last += 1
        self._kept.append((self._last, news))
        self._size += _size(news)
        self._some.set()

    async def after(self, number: int) -> list[tuple[int, News]]:
        """Forget the news up to this number, which have arrived. Returns the next ones, as many as fit one answer; none
        when nothing has come for a while."""
        self._forget(number)
        try:
            async with asyncio.timeout(WAIT_S):
                await self._some.wait()
                if self._size < PIECE:
                    await asyncio.sleep(GATHER_S)
        except TimeoutError:
            pass
        found: list[tuple[int, News]] = []
        size = 0
        for numbered in self._kept:
            size += _size(numbered[1])
            if found and size > PIECE:
                break
            found.append(numbered)
        return found

    def _forget(self, number: int) -> None:
        while self._kept and self._kept[0][0] <= number:
            _, news = self._kept.popleft()
            self._size -= _size(news)
            self._logged -= isinstance(news, WorkerLogRecord)
        if self._unlogged and self._logged < _MOST_LOGGED:
            unlogged, self._unlogged = self._unlogged, 0
            self.add(WorkerLogRecord(__name__, logging.WARNING, f"{unlogged} lines of the log were left out"))
        if not self._kept:
            self._some.clear()


class ForwardingHandler(logging.Handler):
    """Sends log records, redacted, to the driver. Used from any thread."""

    def __init__(self, outbound: Outbound, redactor: Redactor) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._outbound = outbound
        self.addFilter(redactor)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if hasattr(record, "worker"):  # of a worker's own, logged here
            return
        line = WorkerLogRecord(record.name, record.levelno, self.format(record)[:_LINE])
        try:
            self._loop.call_soon_threadsafe(self._outbound.add, line)
        except RuntimeError:  # the loop has ended, and the driver with it
            self.handleError(record)


def _size(news: News) -> int:
    match news:
        case Turn(body=body) | RolloutPiece(piece=body):
            return len(body) + 100
        case WorkerLogRecord(text=text):
            return len(text) + 100
        case _:
            return 1000
