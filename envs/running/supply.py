"""Say whether the inference servers and the trainer are kept busy, and if not, by what they are held up."""

from __future__ import annotations

import logging
import shutil
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envs.records.metrics import Metrics
from envs.running.concurrency import ConcurrencyLimiter
from sandboxes.plurals import plural

logger = logging.getLogger(__name__)

LOOKS = 30
"""Looks that are taken together; one every ten seconds."""
LITTLE_MB, FULL_MB = 256.0, 1.0
"""Free megabytes of a disk that is about to hold up what writes to it, and of one that does."""
_LONG_S = 120.0
"""Seconds without a new step, from which on the sentence has them."""
_BUSY = 0.5
"""Share of a rollout's time that is spent on replies, from which on the inference servers set the pace."""
_LACKS, _CONTENT = 0.8, 0.5
"""Shares of looks at which the trainer waited: for the warning, and for the next one to be possible."""


@dataclass(frozen=True, slots=True)
class SupplyState:
    """The state of a run. failure: the last one, in words; it counts while rollouts are started slowly. shares: of the
    rollouts' time, by phase; empty before the first one ended. running, waiting: requests in the servers; None
    if these do not say. enough: the trainer takes no more for now. still_s: seconds since its last step. begun: every
    wanted group has begun. left: samples of an evaluation, which has no queue."""

    active: int
    limit: int
    most: int
    pause_s: float = 0.0
    failure: str = ""
    free_mb: float = 1e6
    running: float | None = None
    waiting: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    enough: bool = False
    still_s: float = 0.0
    begun: bool = False
    left: int | None = None


def describe(now: SupplyState) -> str:
    """Return in a sentence what holds the inference servers up, or that nothing does; "" if it is not known yet."""
    finding = next(_findings(now), "")
    little = f"only {now.free_mb:.0f} MB of the disk are free" if FULL_MB <= now.free_mb < LITTLE_MB else ""
    return "; ".join(filter(None, [finding, little]))


def _findings(now: SupplyState) -> Iterator[str]:
    """Yield what holds them up, the most certain first."""
    if now.free_mb < FULL_MB:
        yield f"held up by the disk: {now.free_mb:.0f} MB are free"
    if now.pause_s:
        last = f", the last by {now.failure}" if now.failure else ""
        yield f"held up by failures: one rollout is started every {now.pause_s:.0f} s{last}"
    if now.enough:
        still = f", and took none for {now.still_s / 60:.0f} minutes: does it run?" if now.still_s >= _LONG_S else ""
        yield f"the trainer has enough groups for now{still}"
    if now.running is not None and now.waiting:
        yield f"inference servers are full: {now.running:.0f} requests run, {now.waiting:.0f} wait"
    if not now.shares:
        return
    replies = now.shares["replies"]
    if replies < _BUSY:
        share, worst = max((share, phase) for phase, share in now.shares.items() if phase != "replies")
        yield f"held up by {worst}: {share:.0%} of a rollout's time, {replies:.0%} for replies"
    if now.active >= now.limit >= now.most and now.running is not None:
        yield f"held up by the limit: all {now.most} of --env.max_concurrent_rollouts run, and no request waits"
    if now.left is not None and now.left <= now.active < now.limit:
        yield f"only {plural(now.left, 'sample')} left"
    elif now.begun and now.active < now.limit:
        yield "every wanted group has begun"
    elif now.left is None and 2 * now.active < now.limit:
        yield f"held up by the queue: {now.active} rollouts run, {now.limit} may (--env.max_num_workers)"
    pace = f"inference servers set the pace: {replies:.0%} of a rollout's time"
    if now.running is None and now.active >= now.limit >= now.most:
        pace += f"; if they have room, raise --env.max_concurrent_rollouts ({now.most} run)"
    yield pace


class SupplyMonitor:
    """Follows a run. lacks: whether the trainer has less than a batch; None without a trainer. stepped: the time of its
    last step, by `time.monotonic`. enough, begun, left: see `SupplyState`."""

    def __init__(self) -> None:
        self.lacks: bool | None = None
        self.enough = self.begun = False
        self.left: int | None = None
        self.stepped = time.monotonic()
        self._seconds: deque[dict[str, float]] = deque(maxlen=LOOKS)
        self._waited: deque[bool] = deque(maxlen=LOOKS)
        self._warned = False

    def observe(self, directory: Path, metrics: Metrics, limiter: ConcurrencyLimiter) -> None:
        """Look at the run, and write the finding into its metrics. Warns when the trainer begins to starve."""
        load = limiter.load
        now = SupplyState(
            limiter.active,
            limiter.limit,
            limiter.climb.most,
            limiter.breaker.pause_s,
            limiter.breaker.last,
            shutil.disk_usage(directory).free / 2**20,
            None if load is None else load.running,
            None if load is None else load.waiting,
            self._shares(metrics),
            self.enough,
            time.monotonic() - self.stepped,
            self.begun,
            self.left,
        )
        metrics.supply = describe(now)
        if self.lacks is not None:
            self._watch(metrics)

    def _shares(self, metrics: Metrics) -> dict[str, float]:
        """Return the parts of the rollouts' time since the oldest kept look, or since the start."""
        phases = metrics.phases_s
        seconds = {
            "replies": metrics.engine_s,
            "tools": metrics.tools_s,
            "sandboxes": phases.get("open", 0.0) + phases.get("sandbox", 0.0),
            "the verifier": phases.get("verifier", 0.0),
            "total": phases.get("total", 0.0),
        }
        self._seconds.append(seconds)
        since = next((old for old in self._seconds if old["total"] < seconds["total"]), dict.fromkeys(seconds, 0.0))
        spent = {name: seconds[name] - since[name] for name in seconds}
        total = spent.pop("total")
        if total <= 0:
            return {}
        return {
            **{name: part / total for name, part in spent.items()},
            "the agent and all else": 1 - sum(spent.values()) / total,
        }

    def _watch(self, metrics: Metrics) -> None:
        self._waited.append(bool(self.lacks))
        share = sum(self._waited) / len(self._waited)
        if len(self._waited) == LOOKS and share >= _LACKS and not self._warned:
            self._warned = True
            why = [metrics.supply or "no rollout has ended yet"]
            if metrics.dull:
                why.insert(0, "in most groups all rewards are equal")
            logger.warning(
                "the trainer starves: it had less than a batch in %.0f%% of the last %d looks; %s",
                *(100 * share, LOOKS, "; ".join(why)),
            )
        elif share < _CONTENT:
            self._warned = False
