"""Watch the event loop: log blocks of it with their stack, and notice suspensions of the process."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

logger = logging.getLogger(__name__)

_LASTING = (
    "the event loop has been blocked for %.0f s, and the whole process waits. Await slow calls, or move a sync client "
    "into a function without `async`, which runs in a thread; a reward function must return at once. It is blocked in:"
    "\n%s"
)


class LoopWatch:
    """Counts the blocks of the loop that are longer than `limit_s` seconds. One of `long_s` is a warning with its
    stack, at most once in `remind_s`; what is shorter delays nobody noticeably. One that lasts for `lasting_s` is an
    error while it goes on: it may never end.

    Used as `async with`, in the watched loop. A pause without any running thread of the process (SIGSTOP, a
    suspended machine) is no block; `suspended_since` tells of it. The time for which the loop's thread waits for a
    processor of a busy machine is no part of one, and neither is the time between two runs of the loop.
    """

    beat_s = 0.04
    limit_s = 0.05
    long_s = 1.0
    lasting_s = 10.0
    remind_s = 10.0
    suspension_s = 3.0
    """Shortest pause that counts as a suspension of the process, in seconds."""

    def __init__(self) -> None:
        self.blocks = 0
        self.longest_s = 0.0
        self._beaten = time.monotonic()
        self._looked = self._beaten
        self._suspensions: list[tuple[float, float]] = []
        self._stopping = threading.Event()
        self._warned = -self.remind_s
        self._unsaid = 0

    async def __aenter__(self) -> Self:
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        self._schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._beaten = self._looked = time.monotonic()
        self._beating = asyncio.create_task(self._beat())
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        await asyncio.to_thread(self._thread.join)

    def suspended_since(self, moment: float) -> float:
        """Return the seconds of the process's suspensions after `moment` (`time.monotonic`)."""
        return sum(seconds for end, seconds in self._suspensions if end >= moment)

    async def _beat(self) -> None:
        while True:
            self._beaten = time.monotonic()
            await asyncio.sleep(self.beat_s)

    def _watch(self) -> None:
        while not self._stopping.wait(self.beat_s):
            now = time.monotonic()
            pause, self._looked = now - self._looked, now
            if not self._loop.is_running():
                self._beaten = now
            if pause > self.suspension_s:  # this thread stood still as well
                self._suspensions = [*self._suspensions[-99:], (now, pause)]
                logger.warning("the process was suspended for %.1f s", pause)
            elif now - self._beaten > self.limit_s and pause < self.limit_s:
                self._report_block()
        self._looked = time.monotonic()

    def _report_block(self) -> None:
        """Find the present block of the loop, wait for its end, and report it."""
        since, waited, stack, lasts = self._beaten, self._waited_s(), self._stack(), False
        while self._beaten == since and self._loop.is_running() and not self._stopping.wait(0.005):
            self._looked = time.monotonic()
            if not lasts and self._looked - since - (self._waited_s() - waited) > self.lasting_s:
                lasts = True
                logger.error(_LASTING, self.lasting_s, self._stack())
        seconds = time.monotonic() - since - self.beat_s - (self._waited_s() - waited)
        if seconds < self.limit_s:
            return
        self.blocks += 1
        self.longest_s = max(self.longest_s, seconds)
        if seconds < self.long_s or time.monotonic() - self._warned < self.remind_s:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more blocks since the last warning)" if self._unsaid else ""
        self._warned, self._unsaid = time.monotonic(), 0
        logger.warning("the event loop was blocked for %.0f ms%s, last in:\n%s", seconds * 1000, more, stack)

    def _stack(self) -> str:
        """Return what the loop's thread is in, from the loop's own call on."""
        frame = _frame_of(self._thread_id)
        frames = traceback.extract_stack(frame) if frame is not None else []
        of_the_loop = [at for at, one in enumerate(frames) if one.filename == asyncio.events.__file__]
        return "".join(traceback.format_list(frames[of_the_loop[-1] + 1 if of_the_loop else 0 :]))

    def _waited_s(self) -> float:
        """Return the seconds for which the loop's thread has waited for a processor; 0 on a kernel that counts none."""
        try:
            return int(self._schedule.read_text(encoding="utf-8").split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0


def _frame_of(thread_id: int) -> FrameType | None:
    """Return a thread's present frame.

    Python before 3.11.8 and 3.12.1 may collect garbage inside of the call, with a lock held: what then runs in a
    finalizer or another thread can wait for that lock forever."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread_id)
    finally:
        if collecting:
            gc.enable()
