"""Count the events of an environment during its run.

One `Metrics` lives in the environment and is written as JSON. Counting is plain addition; quantiles come from
the last 1,000 observations of each latency.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import orjson

from envs.records.cheat_rate import RECENT_STEPS, cheat_rate, find_rise
from envs.types import RESOURCES, Rollout
from sandboxes.plurals import plural

logger = logging.getLogger(__name__)

UNCALLED_ROLLOUTS = 50
"""Rollouts without a single call before the warning about it."""
KEPT = 1000
"""Kept observations of a latency."""

RECENT_GROUPS, LEAST_GROUPS = 50, 20
"""Groups whose share with signal is watched: the last ones, and how many it takes."""
DULL, SOUND = 0.8, 0.6
"""Shares of these without signal: for the warning, and for the next one to be possible."""

DOUBTFUL_TESTS = 5
"""Named tests of a task in doubt, at most: in an unwatched task the code under test can make up any number."""

KEPT_STEPS = 100
"""Steps with failures of their own."""


class Latency:
    """The last 1,000 durations of something, in seconds."""

    def __init__(self, samples: Iterable[float] = ()) -> None:
        self.samples: deque[float] = deque(samples, maxlen=KEPT)

    def add(self, seconds: float) -> None:
        self.samples.append(seconds)

    def quantile(self, share: float) -> float | None:
        """Return the smallest sample not exceeded by at least `share` of the samples; None without samples."""
        if not self.samples:
            return None
        return sorted(self.samples)[max(0, math.ceil(share * len(self.samples)) - 1)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Latency) and self.samples == other.samples

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable


@dataclass(slots=True)
class Metrics:
    """Counters of a run. Times are in seconds; `started` and `updated` are Unix times.

    groups: finished ones; groups_sent went to the trainer. Of those with several rollouts `groups_with_signal` have
        differing rewards, and `groups_without_signal` equal ones.
    rollouts: judged ones; `solved` ones have a reward of at least 1.
    tokens_sampled, tokens: trained tokens, and all tokens of the rows.
    tokens_refused: sampled in aborted or refused replies; in no row, but paid for.
    unshown: tools' results without a text form, such as pictures.
    compactions: how often agents have made their conversations shorter; tokens_saved: by how many tokens, about.
    untrained: sampled tokens that were left out of the rows, by reason.
    drifts: rollouts with a last prompt other than the chat template's own, by kind (`atropos_agent.tokens.drift`).
    engine_s, tools_s: waiting time for the inference server and in tools, summed over concurrent rollouts;
        phases_s: the same by phase of a rollout.
    engine: latency of one reply; tool: of one tool call (the mean over the calls of its turn).
    failures: infrastructure failures by kind; failures_by_step: the same for the trainer's last 100 steps.
    stops: rollouts by stop reason.
    sign_rates: `rollouts`, and `cheated` ones with signs of cheating, by step. alarmed: a rise was seen.
    versions: rollouts, their rewards and the solved ones, by resource as name=version; the last 100.
    agents: `rollouts`, `solved` ones and the sum of `reward`, by agent, in a run of several.
    states: groups by outcome (see `envs.running.journal`); they add up to all groups started.
    concurrency: the present limit of concurrent rollouts.
    loop_blocks: long blocks of the event loop.
    recent: whether the last groups had differing rewards. dull: too few of them had.
    flaky: tasks in doubt (`envs.checking.flakes`), with a few tests that had two statuses on the same changes.
    supply: what the inference servers are held up by, in a sentence (see `envs.running.supply`).
    """

    started: float = field(default_factory=time.time)
    updated: float = 0.0
    groups: int = 0
    groups_with_signal: int = 0
    groups_without_signal: int = 0
    groups_sent: int = 0
    rollouts: int = 0
    solved: int = 0
    reward_sum: float = 0.0
    steps: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    malformed_calls: int = 0
    unshown: int = 0
    tokens: int = 0
    tokens_sampled: int = 0
    tokens_refused: int = 0
    compactions: int = 0
    tokens_saved: int = 0
    untrained: Counter[str] = field(default_factory=Counter)
    engine_s: float = 0.0
    tools_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    failures_by_step: dict[str, dict[str, int]] = field(default_factory=dict)
    stops: Counter[str] = field(default_factory=Counter)
    drifts: Counter[str] = field(default_factory=Counter)
    cheats: Counter[str] = field(default_factory=Counter)
    cheats_by_step: dict[str, dict[str, int]] = field(default_factory=dict)
    sign_rates: dict[str, dict[str, int]] = field(default_factory=dict)
    versions: dict[str, dict[str, float]] = field(default_factory=dict)
    alarmed: bool = False
    agents: dict[str, dict[str, float]] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    concurrency: int = 0
    loop_blocks: int = 0
    recent: list[bool] = field(default_factory=list)
    dull: bool = False
    flaky: dict[str, list[str]] = field(default_factory=dict)
    supply: str = ""
    engine: Latency = field(default_factory=Latency)
    tool: Latency = field(default_factory=Latency)

    def count_rollout(self, rollout: Rollout) -> None:
        """Count a judged rollout."""
        result = rollout.result
        self.rollouts += 1
        self.solved += rollout.verdict.solved
        self.reward_sum += rollout.reward.value
        self.steps += len(result.steps)
        self.tokens += sum(len(segment.tokens) for segment in result.segments)
        self.tokens_sampled += result.sampled_tokens
        self.tokens_refused += result.counts.refused_tokens
        self.malformed_calls += result.counts.malformed_calls
        self.unshown += result.counts.unshown
        self._count_conversations(result.metadata)
        if result.drift is not None:
            self.drifts[str(result.drift)] += 1
        self.stops[result.stop_reason.value if result.stop_reason else "error"] += 1
        for sign in rollout.verdict.signs:
            self.cheats[sign] += 1
            _count_at(self.cheats_by_step, rollout.seat.step, sign)
        self._watch_signs(rollout)
        self._count_versions(rollout)
        for phase, seconds in rollout.timings_s.items():
            self.phases_s[phase] = self.phases_s.get(phase, 0.0) + seconds
        for step in result.steps:
            self.engine_s += step.engine_s
            self.engine.add(step.engine_s)
            self.tools_s += step.tools_s
            self.tool_calls += len(step.calls)
            self.tool_errors += sum(item.is_error for item in step.results)
            if step.calls:
                self.tool.add(step.tools_s / len(step.calls))
        self._watch_calls(rollout)
        if rollout.seat.agent:
            of = self.agents.setdefault(rollout.seat.agent, {"rollouts": 0, "solved": 0, "reward": 0.0})
            of["rollouts"] += 1
            of["solved"] += rollout.verdict.solved
            of["reward"] += rollout.reward.value

    def _count_conversations(self, metadata: Mapping[str, Any]) -> None:
        """Count what became of a rollout's conversations, of our agent or of one that isn't ours."""
        found = {**metadata.get("gateway", {}), **metadata.get("conversations", {})}
        self.untrained.update(found.get("untrained_tokens", {}))
        compaction = found.get("compaction", {})
        self.compactions += compaction.get("count", 0)
        self.tokens_saved += compaction.get("tokens_saved", 0)

    def _count_versions(self, rollout: Rollout) -> None:
        for name, about in rollout.result.metadata.get(RESOURCES, {}).items():
            counted = {"rollouts": 1, "reward_sum": rollout.reward.value, "solved": rollout.verdict.solved}
            _add_at(self.versions, f"{name}={about['version']}", counted)

    def _watch_calls(self, rollout: Rollout) -> None:
        """Warn once if the first rollouts were shown tools and nobody has called one."""
        if self.rollouts == UNCALLED_ROLLOUTS and not self.tool_calls and rollout.result.conditions.tools:
            logger.warning(
                "nobody has called a tool in the run's first %d rollouts, of which %d were solved, and %d calls were "
                "malformed: see whether `doctor` reads the model's calls (docs/formats.md), or set --env.tool_format",
                *(self.rollouts, self.solved, self.malformed_calls),
            )

    def _watch_signs(self, rollout: Rollout) -> None:
        """Count whether there are signs of cheating, and warn once when more and more rollouts show them."""
        _count_at(self.sign_rates, rollout.seat.step, "rollouts")
        if rollout.verdict.signs:
            _count_at(self.sign_rates, rollout.seat.step, "cheated")
        rise = find_rise(self.sign_rates)
        if rise is not None and not self.alarmed:
            logger.warning(
                "signs of cheating rise: %.0f%% of rollouts in the trainer's last %d steps, %.0f%% before; "
                "read those rollouts (see docs/reward.md) before you train on",
                *(100 * rise[1], RECENT_STEPS, 100 * rise[0]),
            )
        self.alarmed = rise is not None

    def count_group(self, *, signal: bool | None) -> None:
        """Count a finished group; `signal`: its rewards differ; None for a single rollout."""
        self.groups += 1
        if signal is not None:
            self.groups_with_signal += signal
            self.groups_without_signal += not signal
            self.recent = [*self.recent[1 - RECENT_GROUPS :], bool(signal)]
            self._watch_signal()

    def _watch_signal(self) -> None:
        """Warn when most groups teach a trainer nothing."""
        share = 1 - sum(self.recent) / len(self.recent)
        if len(self.recent) >= LEAST_GROUPS and share >= DULL and not self.dull:
            self.dull = True
            logger.warning(
                "in %d of the last %d groups all rewards are equal, so they teach a trainer nothing; the mean reward "
                "is %.2f: give %s tasks, or a larger --env.group_size",
                *(self.recent.count(False), len(self.recent), self.reward_mean or 0.0),
                "easier" if (self.reward_mean or 0.0) < 0.5 else "harder",
            )
        elif share < SOUND:
            self.dull = False

    def count_doubts(self, doubts: Mapping[str, Iterable[str]]) -> None:
        """Note the tasks in which the same changes got different verdicts, with the tests that differed. Warn once a
        task."""
        for task, tests in doubts.items():
            known = self.flaky.get(task)
            self.flaky[task] = sorted({*(known or ()), *tests})[:DOUBTFUL_TESTS]
            if known is None:
                logger.warning(
                    "task %s: the same changes got different verdicts (%s); its tests may be flaky: "
                    "`tasks check --seen` with this run's directory decides (docs/tasks.md)",
                    *(task, ", ".join(f"{test!r:.200}" for test in self.flaky[task]) or "no test is named"),
                )

    def count_failure(self, kind: str, *, step: int = 0, refused_tokens: int = 0) -> None:
        """Count an infrastructure failure (see `InfraError.kind`). step: the trainer's; refused_tokens: its price."""
        self.tokens_refused += refused_tokens
        self.failures[str(kind)] += 1  # an enumeration's member is no key of a JSON object
        _count_at(self.failures_by_step, step, str(kind))

    @property
    def reward_mean(self) -> float | None:
        """Return the mean reward of a rollout; None before the first."""
        return self.reward_sum / self.rollouts if self.rollouts else None

    def scalars(self, now: float | None = None) -> dict[str, float]:
        """Return single numbers for a log or a plot, without missing values. `now`: Unix time."""
        elapsed = max((time.time() if now is None else now) - self.started, 1e-9)
        compared = self.groups_with_signal + self.groups_without_signal
        values: dict[str, float | None] = {
            "reward_mean": self.reward_mean,
            "solved_share": self.solved / self.rollouts if self.rollouts else None,
            "signal_share": self.groups_with_signal / compared if compared else None,
            "steps_per_rollout": self.steps / self.rollouts if self.rollouts else None,
            "tokens_per_rollout": self.tokens / self.rollouts if self.rollouts else None,
            "sampled_tokens_per_s": self.tokens_sampled / elapsed,
            "tokens_refused": self.tokens_refused,
            "drift_share": self.drifts.total() / self.rollouts if self.rollouts else None,
            "cheat_share": cheat_rate(
                [self.sign_rates[step] for step in sorted(self.sign_rates, key=int)[-RECENT_STEPS:]]
            ),
            "engine_p50_s": self.engine.quantile(0.5),
            "engine_p95_s": self.engine.quantile(0.95),
            "tool_p50_s": self.tool.quantile(0.5),
            "tool_p95_s": self.tool.quantile(0.95),
            "groups": self.groups,
            "groups_sent": self.groups_sent,
            "rollouts": self.rollouts,
            "malformed_calls": self.malformed_calls,
            "unshown": self.unshown,
            "tool_errors": self.tool_errors,
            "compactions": self.compactions,
            "tokens_saved": self.tokens_saved,
            "concurrency": self.concurrency,
            "loop_blocks": self.loop_blocks,
            "flaky_tasks": len(self.flaky),
            **{f"groups/{state}": count for state, count in self.states.items()},
            **{f"failures/{kind}": count for kind, count in self.failures.items()},
            **{f"drift_share/{kind}": count / self.rollouts for kind, count in self.drifts.items() if self.rollouts},
            **{f"untrained_tokens/{reason}": count for reason, count in self.untrained.items()},
            **{f"reward_mean/{name}": of["reward"] / of["rollouts"] for name, of in self.agents.items()},
            **{f"solved_share/{name}": of["solved"] / of["rollouts"] for name, of in self.agents.items()},
            **{f"cheats/{sign}": count for sign, count in self.cheats.items()},
        }
        return {name: value for name, value in values.items() if value is not None}

    def line(self) -> str:
        """Return the most important figures in a few words."""
        if not self.rollouts:
            return (
                f"no rollout yet, {plural(self.failures.total(), 'infrastructure failure')}"
                if self.failures
                else "no rollout yet"
            )
        parts = [
            plural(self.rollouts, "rollout"),
            f"{self.solved / self.rollouts:.0%} solved",
            f"reward {self.reward_mean:.3f}",
            f"{self.concurrency} at once" if self.concurrency else "",
            plural(self.failures.total(), "infrastructure failure") if self.failures else "",
            f"rewards differ in {sum(self.recent) / len(self.recent):.0%} of groups" if self.recent else "",
            self.supply,
        ]
        return ", ".join(part for part in parts if part)

    def to_json(self) -> bytes:
        """Return everything, as one JSON object."""
        values = {item.name: getattr(self, item.name) for item in fields(self)} | {"updated": time.time()}
        return orjson.dumps(values, default=lambda latency: list(latency.samples))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read the output of `to_json`. Raises ValueError for anything else."""
        values = orjson.loads(data)
        names = {item.name for item in fields(cls)}
        # Earlier versions did not have the others.
        if not isinstance(values, dict) or not {"started", "rollouts"} <= values.keys() <= names:
            raise ValueError(f"not the metrics of this version: expected the keys {sorted(names)}")
        counters = ("failures", "stops", "drifts", "cheats", "untrained")
        kinds = {**dict.fromkeys(counters, Counter), **dict.fromkeys(("engine", "tool"), Latency)}
        values |= {name: kind(values[name]) for name, kind in kinds.items() if name in values}
        return cls(**values)


def _count_at(by_step: dict[str, dict[str, int]], step: int, what: str) -> None:
    """Count something at a step of the trainer's; only the last steps are kept."""
    _add_at(by_step, str(step), {what: 1})


def _add_at(table: dict[str, dict[str, Any]], key: str, counted: Mapping[str, float]) -> None:
    """Add to the counts under a key; only the last keys are kept."""
    now = table.setdefault(key, {})
    for name, count in counted.items():
        now[name] = now.get(name, 0) + count
    while len(table) > KEPT_STEPS:
        del table[next(iter(table))]
