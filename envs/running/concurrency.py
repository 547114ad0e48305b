"""How many rollouts run at the same time: as many as help, and few while something is broken."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from atropos_agent.engines.completions import Load
from envs.types import InfraError

logger = logging.getLogger(__name__)


class CircuitBreaker:
    """Opens when rollouts fail by our fault more often than they may; while it is open, their starts are spaced.

    share: of the last 40 rollouts (at least 16 of them) that may fail.
    """

    kept = 40
    least = 16
    longest_s = 60.0
    """Longest pause between two starts, in seconds."""
    remind_s = 30.0

    def __init__(self, share: float) -> None:
        self.share = share
        self.pause_s = 0.0
        """Between the starts of two rollouts; 0 when all is well."""
        self._last: deque[str | None] = deque(maxlen=self.kept)
        self._reminded = 0.0
        self._raised = 0.0

    @property
    def is_open(self) -> bool:
        """Whether starts are spaced now."""
        return self.pause_s > 0

    def note(self, error: InfraError | None) -> None:
        """Take in how a rollout ended; None is well."""
        self._last.append(None if error is None else error.kind)
        failed = Counter(kind for kind in self._last if kind is not None)
        if error is None:
            if self.is_open and all(kind is None for kind in list(self._last)[-3:]):
                logger.warning("rollouts succeed again; they are started at full speed")
                self.pause_s = 0.0
                self._last.clear()
        elif len(self._last) >= self.least and failed.total() > self.share * len(self._last):
            now = time.monotonic()
            # Once in a pause: the many that were under way when it began to fail are one piece of news.
            if now - self._raised >= self.pause_s:
                self._raised = now
                self.pause_s = min(self.longest_s, 2 * self.pause_s or 1.0)
            if now - self._reminded > self.remind_s:
                self._reminded = now
                kinds = ", ".join(f"{kind}: {count}" for kind, count in failed.most_common())
                logger.error(
                    "%d of the last %d rollouts failed by our fault (%s), the last one by %s. Until they succeed, "
                    "one is started every %.0f s, and no task is quarantined for it",
                    failed.total(),
                    len(self._last),
                    kinds,
                    error,
                    self.pause_s,
                )


@dataclass(slots=True)
class HillClimb:
    """Looks for the number of rollouts at which the inference servers sample most tokens a second.

    It grows by a quarter while that helps and shrinks by a fifth when requests queue in a server or
    are put back for lack of memory. When growing did not help, it goes back and waits 12 looks.
    """

    limit: int
    most: int
    _before: tuple[int, float] | None = None
    _rest: int = 0

    def look(self, *, tokens_per_s: float, saturated: bool, queueing: bool) -> int:
        """The limit from now on. saturated: as many ran as might."""
        if queueing:
            self.limit = max(1, self.limit * 4 // 5)
            self._before, self._rest = None, 12
        elif self._before is not None and saturated and tokens_per_s < 1.02 * self._before[1]:
            self.limit, self._before, self._rest = self._before[0], None, 12
        elif self._rest:
            self._rest -= 1
        elif saturated and self.limit < self.most:
            self._before = (self.limit, tokens_per_s)
            self.limit = min(self.most, self.limit + max(1, self.limit // 4))
        return self.limit


class ConcurrencyLimiter:
    """Lets rollouts start. start, most: rollouts at the same time, at first and ever; breaker: spaces their starts."""

    look_s = 10.0
    """Between two changes of the limit, in seconds."""
    samples = 5
    """Looks at the inference servers in that time: requests that wait in each of them queue, others came in a burst."""

    def __init__(self, *, start: int, most: int, breaker: CircuitBreaker) -> None:
        self.climb = HillClimb(min(start, most), most)
        self.breaker = breaker
        self.active = 0
        self.tokens = 0
        """Sampled so far; counted by whoever makes the rollouts."""
        self._most_active = 0
        self._turnstile = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def limit(self) -> int:
        """Rollouts that may run at the same time now."""
        return self.climb.limit

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait to be let in, in the order of asking; out again when the block ends."""
        async with self._turnstile:
            while self.active >= self.climb.limit:
                self._freed.clear()
                await self._freed.wait()
            if self.breaker.is_open:
                await asyncio.sleep(self.breaker.pause_s)
            self.active += 1
        self._most_active = max(self._most_active, self.active)
        try:
            yield
        finally:
            self.active -= 1
            self._freed.set()

    async def follow(self, load: Callable[[], Awaitable[Load | None]]) -> None:
        """Adapt the limit to what the inference servers say (`load`), for ever."""
        preempted, tokens = 0.0, self.tokens
        while True:
            seen = []
            for _ in range(self.samples):
                await asyncio.sleep(self.look_s / self.samples)
                if (now := await load()) is not None:
                    seen.append(now)
            queueing = bool(seen) and all(now.waiting > max(1.0, 0.1 * now.running) for now in seen)
            if seen:
                queueing, preempted = queueing or seen[-1].preempted > preempted, seen[-1].preempted
            before = self.climb.limit
            self.climb.look(
                tokens_per_s=(self.tokens - tokens) / self.look_s,
                saturated=self._most_active >= before,
                queueing=queueing,
            )
            tokens, self._most_active = self.tokens, self.active
            if self.climb.limit != before:
                logger.info("up to %d rollouts at the same time from now on", self.climb.limit)
                self._freed.set()
