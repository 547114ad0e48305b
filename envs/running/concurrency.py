"""How many rollouts run at the same time: as many as help, and few while something is broken."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from atropos_agent.engines.load import Load
from envs.types import InfraError

logger = logging.getLogger(__name__)


class CircuitBreaker:
    """Opens when infrastructure failures of rollouts exceed their share; while it is open, rollout starts are spaced.

    share: the part of the last 40 rollouts (at least 16 of them) that may fail.
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
        self.last = ""
        """The last failure, in words without secrets."""
        self._last: deque[str | None] = deque(maxlen=self.kept)
        self._reminded = 0.0
        self._raised = 0.0

    @property
    def is_open(self) -> bool:
        """Tell whether starts are spaced now."""
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
                    "%d of the last %d rollouts had infrastructure failures (%s), the last by %s. Until they succeed, "
                    "one is started every %.0f s, and no task is quarantined for it",
                    failed.total(),
                    len(self._last),
                    kinds,
                    error,
                    self.pause_s,
                )


_KEPT = 0.6
"""Share of the best rate per rollout at which doubling goes on: new rollouts have sampled little yet."""
_PATIENCE = 6
"""Looks, without a change, after which a rate below this share is believed."""
_ENOUGH = 3
"""Looks that are compared with as many others when it grows by a quarter."""


@dataclass(slots=True)
class HillClimb:
    """Looks for the number of rollouts at which the inference servers sample most tokens a second.

    At first it doubles with every look, as TCP's slow start does, while each rollout still gets tokens at the best
    rate seen. After six looks below it, it goes to the number at which the present tokens would be sampled at that
    rate, and from then on grows by a quarter while that helps. Whenever requests queue in a server, it shrinks by
    the number of waiting ones, and by a fifth when they are put back for lack of memory; never by more than a fifth
    at once. When growing did not help, it goes back and waits 12 looks.
    """

    limit: int
    most: int
    why: str = ""
    """The reason of the last change, in words."""
    _doubles: bool = True
    _best: float = 0.0
    """Most tokens a second that a rollout got, as a mean since a change."""
    _looks: int = 0
    _tokens_per_s: float = 0.0
    """Summed over the looks since the last change."""
    _before: tuple[int, float] | None = None
    _rest: int = 0

    def observe(self, *, tokens_per_s: float, saturated: bool, room: int | None = None) -> int:
        """Return the limit from now on. saturated: as many ran as might. room: how many rollouts the servers have
        room for, if less than all running ones."""
        if room is not None:
            self._doubles, self._before = False, None
            self.why = f"requests wait in the inference servers, which have room for {max(0, room)} rollouts"
            self._change(max(self.limit * 4 // 5, min(self.limit, room)), rest=12)
        elif saturated:
            self._looks += 1
            self._tokens_per_s += tokens_per_s
            if self._doubles:
                self._double()
            else:
                self._climb()
        elif self._rest:
            self._rest -= 1
        return self.limit

    def _double(self) -> None:
        mean = self._tokens_per_s / self._looks
        if mean >= _KEPT * self._best * self.limit:
            self._best = max(self._best, mean / self.limit)
            self.why = f"each rollout still got its share of {mean:.0f} tokens/s: doubled"
            self._change(2 * self.limit)
        elif self._looks >= _PATIENCE:
            self._doubles = False
            self.why = f"{mean:.0f} tokens/s are what fewer rollouts would be sampled at the best rate"
            self._change(math.ceil(mean / self._best), rest=12)

    def _climb(self) -> None:
        if self._rest:
            self._rest -= 1
            return
        if self._looks < _ENOUGH or (self.limit >= self.most and self._before is None):
            return
        mean = self._tokens_per_s / self._looks
        if self._before is not None and mean < 1.02 * self._before[1]:
            limit, before = self._before
            self._before = None
            self.why = f"growing did not help: {mean:.0f} tokens/s, {before:.0f} before"
            self._change(limit, rest=12)
        else:
            self.why = f"{mean:.0f} tokens/s with {self.limit}; a quarter more is tried"
            self._before = (self.limit, mean)
            self._change(self.limit + max(1, self.limit // 4))

    def _change(self, limit: int, *, rest: int = 0) -> None:
        self.limit = max(1, min(self.most, limit))
        self._rest, self._looks, self._tokens_per_s = rest, 0, 0.0


class ConcurrencyLimiter:
    """Lets rollouts start. start, most: rollouts at the same time, at first and ever; breaker: spaces their starts."""

    look_s = 10.0
    """Between two changes of the limit, in seconds."""
    samples = 5
    """Looks at the inference servers in this time: requests that wait at each look queue, others came in a burst."""

    def __init__(self, *, start: int, most: int, breaker: CircuitBreaker) -> None:
        self.climb = HillClimb(min(start, most), most)
        self.changes: deque[dict[str, Any]] = deque(maxlen=100)
        """Changes of the limit that nobody has written down yet, as in `envs.records.timeline`."""
        self.breaker = breaker
        self.active = 0
        self.load: Load | None = None
        """The inference servers' last report."""
        self._most_active = 0
        self._turnstile = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def limit(self) -> int:
        """Return how many rollouts may run at the same time now."""
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

    async def follow(self, load: Callable[[], Awaitable[Load | None]], sampled: Callable[[], int]) -> None:
        """Adapt the limit to the inference servers' reports (`load`), for ever.

        sampled: tells tokens, or replies, sampled so far."""
        preempted, before = 0.0, sampled()
        while True:
            seen = []
            for _ in range(self.samples):
                await asyncio.sleep(self.look_s / self.samples)
                if (now := await load()) is not None:
                    seen.append(now)
            self.load = seen[-1] if seen else None
            # More may still run than the limit lets in: what was shrunk before has not helped yet.
            excess = min((now.waiting - max(1.0, 0.1 * now.running) for now in seen), default=0.0)
            if seen:
                if seen[-1].preempted > preempted:
                    excess = max(excess, self.climb.limit / 5)
                preempted = seen[-1].preempted
            tokens = sampled() - before
            before += tokens
            # Until then nothing is known: images are built, sandboxes opened.
            at_work = tokens > 0 or any(now.running > 0 for now in seen)
            limit = self.climb.limit
            self.climb.observe(
                tokens_per_s=tokens / self.look_s,
                saturated=at_work and self._most_active >= limit,
                room=self.active - math.ceil(excess) if excess > 0 else None,
            )
            self._most_active = self.active
            if self.climb.limit != limit:
                logger.info("up to %d rollouts at the same time from now on: %s", self.climb.limit, self.climb.why)
                found = {"t": time.time(), "before": limit, "limit": self.climb.limit, "why": self.climb.why}
                self.changes.append(found)
                self._freed.set()
