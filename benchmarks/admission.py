"""How soon as many rollouts run as help: the concurrency limiter on a simulated clock.

    python benchmarks/admission.py [--most 512] [--seconds 60] [--minutes 60]

Rollouts of `--seconds` (half of it in tools) begin as soon as they are let in, at inference servers that take anything,
get slower beyond a number of requests, or let requests queue beyond one. Prints, for each, the minutes until
that number ran, the limit at the end, and what share of the tokens that were possible was sampled.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_agent.engines.load import Load
from envs.running.concurrency import CircuitBreaker, ConcurrencyLimiter


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer: an hour takes a second or two."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def skip(timeout: float | None = None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        selector.select = skip

    def time(self) -> float:
        return self._now


@dataclass
class Engine:
    """Samples 100 tokens a reply.

    slow_from: requests at the same time beyond which each gets slower, so that tokens a second stay the same.
    queue_from: requests at the same time beyond which others wait. tells: whether it says how busy it is.
    """

    reply_s: float
    slow_from: float = math.inf
    queue_from: float = math.inf
    tells: bool = True
    running: int = 0
    waiting: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.places = asyncio.Semaphore(10**6 if math.isinf(self.queue_from) else int(self.queue_from))

    async def reply(self) -> None:
        self.waiting += 1
        async with self.places:
            self.waiting -= 1
            self.running += 1
            left = random.uniform(0.5, 1.5)  # of a usual reply
            while left > 0:
                seconds = self.reply_s * max(1.0, self.running / self.slow_from)
                share = min(left, max(0.1, 1.0 / seconds))
                await asyncio.sleep(share * seconds)
                left -= share
            self.running -= 1
            self.tokens += 100

    async def load(self) -> Load | None:
        return Load(self.running, self.waiting, 0) if self.tells else None


async def simulate(
    engine: Engine, *, start: int, most: int, rollout_s: float, turns: int, minutes: float
) -> list[tuple[float, int, int, int]]:
    """Let rollouts in. Returns, for every second, the time, how many ran, the limit, and the tokens so far."""
    limiter = ConcurrencyLimiter(start=start, most=most, breaker=CircuitBreaker(0.5))
    loop = asyncio.get_running_loop()

    async def rollout() -> None:
        async with limiter.slot():
            for _ in range(turns):
                await engine.reply()
                await asyncio.sleep(random.uniform(0.2, 1.8) * rollout_s / turns / 2)

    async def forever() -> None:
        while True:
            await rollout()

    tasks = [asyncio.create_task(forever()) for _ in range(most + 8)]
    tasks.append(asyncio.create_task(limiter.follow(engine.load, lambda: engine.tokens)))
    seen = []
    while loop.time() < 60 * minutes:
        await asyncio.sleep(1.0)
        seen.append((loop.time(), limiter.active, limiter.limit, engine.tokens))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return seen


def run(make: Callable[[], Engine], **how: Any) -> list[tuple[float, int, int, int]]:
    loop = SkippingLoop()

    async def work() -> Any:
        return await simulate(make(), **how)

    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    reply_s = options.seconds / options.turns / 2
    engines: dict[str, tuple[Callable[[], Engine], float]] = {
        "takes anything": (lambda: Engine(reply_s), options.most),
        "takes anything, says nothing": (lambda: Engine(reply_s, tells=False), options.most),
        "slower from 12 requests": (lambda: Engine(reply_s, slow_from=12), 24),
        "slower from 64 requests": (lambda: Engine(reply_s, slow_from=64), 128),
        "slower from 64, says nothing": (lambda: Engine(reply_s, slow_from=64, tells=False), 128),
        "queues from 12 requests": (lambda: Engine(reply_s, queue_from=12), 24),
        "queues from 64 requests": (lambda: Engine(reply_s, queue_from=64), 128),
    }
    print("| inference server | minutes to 90% of what helps | limit at the end | most | tokens |")
    print("|---|---:|---:|---:|---:|")
    for name, (make, helps) in engines.items():
        reached, limits, mosts, shares = [], [], [], []
        for seed in range(options.seeds):
            random.seed(seed)
            seen = run(
                make, start=16, most=options.most, rollout_s=options.seconds, turns=options.turns,
                minutes=options.minutes,
            )  # fmt: skip
            reached.append(next((t / 60 for t, active, *_ in seen if active >= 0.9 * helps), math.inf))
            limits.append(seen[-1][2])
            mosts.append(max(active for _, active, *_ in seen))
            possible = 100 * options.turns * helps / options.seconds * seen[-1][0]
            shares.append(seen[-1][3] / possible)
        print(
            f"| {name} | {_range(reached, '.1f')} | {_range(limits, '.0f')} | {_range(mosts, '.0f')} |"
            f" {min(shares):.0%} |",
            flush=True,
        )


def _range(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low}–{high}"


if __name__ == "__main__":
    main()
