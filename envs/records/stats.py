"""Compute an evaluation's figures: pass@k, means and their errors.

Samples of one task depend on each other, so standard errors are taken over tasks
(the tasks are the clusters), after "Adding Error Bars to Evals" (Miller 2024).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from envs.records.tables import Sheet
from sandboxes.plurals import plural

SOLVED = 1.0
"""The least reward of a correct sample."""
NO_INTERVAL = "no interval (too few tasks, or all alike)"
"""The words after a figure without an interval."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the probability of a correct sample among k drawn without replacement from n, c of them correct.

    The unbiased estimator 1 - C(n - c, k) / C(n, k) of "Evaluating Large Language Models Trained on
    Code" (Chen et al. 2021). Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks. stderr: sample standard deviation / sqrt(tasks); None with one task."""

    mean: float
    stderr: float | None
    tasks: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Estimate:
        """Estimate the mean of `values`. Raises ValueError without values."""
        if not values:
            raise ValueError("a mean needs at least one task")
        stderr = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(statistics.fmean(values), stderr, len(values))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.stderr is None else f"{self.mean:.3f} ± {self.stderr:.3f}"


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return the 95% Wilson score interval of a proportion. It is (0, 1) when n is 0.

    Raises ValueError unless 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"an interval needs 0 <= successes <= n, got {successes} of {n}")
    if n == 0:
        return 0.0, 1.0
    share, z = successes / n, 1.959963984540054
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At the ends the bound is the share itself, which rounding would miss by a little.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return low, high


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95% interval."""

    low: float
    high: float

    def __format__(self, sign: str) -> str:
        return f"[{percent(self.low, sign)}, {percent(self.high, sign)}]"


LEAST = 5
"""Least values for an interval of their mean; fewer do not show their variation."""
# Student's t, 97.5%, by degrees of freedom.
_T = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042}
_T_FAR = ((60, 2.000), (120, 1.980))


def interval(values: Sequence[float]) -> Interval | None:
    """Return the 95% interval of the mean of independent values (Student's t), None for fewer than `LEAST`, or equal
    ones."""
    if len(values) < LEAST or len(set(values)) == 1:
        return None
    freedom = len(values) - 1
    # The next smaller number of degrees makes it a little wider, never narrower.
    known = {**_T, **dict(_T_FAR)}
    t = known[max(degrees for degrees in known if degrees <= freedom)]
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(statistics.fmean(values) - half, statistics.fmean(values) + half)


def share_interval(rates: Sequence[float]) -> Interval | None:
    """Return the 95% interval of the mean of tasks' solve rates, None for too few. If all are 0, or all 1, it is the
    interval of as many tasks, each solved or not."""
    if len(rates) >= LEAST and set(rates) in ({0.0}, {1.0}):
        return Interval(*wilson(round(sum(rates)), len(rates)))
    found = interval(rates)
    return None if found is None else Interval(max(0.0, found.low), min(1.0, found.high))


def percent(value: float | None, sign: str = "", decimals: int = 0) -> str:
    """Return a share as a percentage, None as "–"; sign: "+" for a difference."""
    return "–" if value is None else f"{value:{sign}.{decimals}%}"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The samples of one task. low, high: 95% interval of the solve rate. digest: of the task, "" if unknown."""

    task_id: str
    samples: int
    solved: int
    reward_mean: float
    low: float
    high: float
    digest: str = ""


@dataclass(frozen=True, slots=True)
class EvalSummary:
    """An evaluation. `pass_at` holds only values of k with enough samples of every counted task.

    reward: mean over tasks of the task's mean reward; None when no task has a sample.
    unsampled: tasks without any sample (all attempts were infrastructure failures); they count nowhere.
    """

    tasks: Sequence[TaskResult]
    pass_at: Mapping[int, Estimate]
    reward: Estimate | None
    unsampled: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    """Conditions of the evaluation: model, sampling, samples."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Why samples are missing, with how many for each reason. It is not written: servers' words may hold secrets."""

    usage: Sequence[Mapping[str, Any]] = ()
    """Of hosted models, as their providers count it, of this start: an entry for each endpoint."""
    agents: Mapping[str, EvalSummary] = field(default_factory=dict)
    """The outcome of each agent in an evaluation of several; the other figures are over the samples of all."""

    @property
    def wanted(self) -> int:
        """Return the wanted number of samples; 0 if unknown."""
        counts = self.about.get("samples") or {}
        return int(counts.get("made", 0)) + int(counts.get("missing", 0))

    def metrics(self) -> dict[str, float]:
        """Return single numbers for a log."""
        named = {f"pass@{k}": estimate for k, estimate in self.pass_at.items()}
        if self.reward is not None:
            named["reward"] = self.reward
        for agent, of in self.agents.items():
            named |= {f"pass@{k}/{agent}": estimate for k, estimate in of.pass_at.items()}
        values = {f"eval/{name}": estimate.mean for name, estimate in named.items()}
        errors = {f"eval/{name}_stderr": e.stderr for name, e in named.items() if e.stderr is not None}
        return {**values, **errors, "eval/tasks": len(self.tasks), "eval/unsampled_tasks": len(self.unsampled)}

    def to_json(self) -> dict[str, Any]:
        """Return everything, for `orjson.dumps`."""
        return {
            "format": 1,
            "about": dict(self.about),
            **self._figures(),
            **({"agents": {agent: of._figures() for agent, of in self.agents.items()}} if self.agents else {}),
            **({"usage": list(self.usage)} if self.usage else {}),
        }

    def _figures(self) -> dict[str, Any]:
        return {
            "pass_at": {str(k): asdict(estimate) for k, estimate in self.pass_at.items()},
            "reward": None if self.reward is None else asdict(self.reward),
            "tasks": [asdict(task) for task in self.tasks],
            "unsampled": list(self.unsampled),
        }

    def render(self) -> Sheet:
        """Return a table with a line per task and the totals below."""
        heads = ("solved", "rate [95% interval]", "mean reward")
        table = Sheet("task", *heads, title=self._title(), right=heads)
        solved, rate, reward = self.solved, str(self.pass_at.get(1, "")), str(self.reward or "")
        table.totals = ("mean over tasks ± standard error", solved, rate, reward)
        for task in self.tasks:
            rate = f"{task.solved / task.samples:.2f} [{task.low:.2f}, {task.high:.2f}]"
            table.add(task.task_id, f"{task.solved}/{task.samples}", rate, f"{task.reward_mean:.3f}")
        for name in self.unsampled:
            table.add(name, "–", "no sample: infrastructure failures", "–")
        return table

    def _title(self) -> str:
        if not self.pass_at:
            return "no task has a sample"
        figures = "   ".join(f"pass@{k} {estimate}" for k, estimate in sorted(self.pass_at.items()))
        samples = sum(task.samples for task in self.tasks)
        return f"{figures}   ({plural(len(self.tasks), 'task')}, {plural(samples, 'sample')})"

    @property
    def solved(self) -> str:
        """Return how many of all samples are solved, as 3/8."""
        return f"{sum(task.solved for task in self.tasks)}/{sum(task.samples for task in self.tasks)}"


def summarise(
    results: Mapping[str, Sequence[float]],
    ks: Sequence[int] = (1,),
    *,
    about: Mapping[str, Any] | None = None,
    digests: Mapping[str, str] | None = None,
) -> EvalSummary:
    """Make a summary of each task's rewards, with pass@k for those of `ks` with enough samples of every sampled task. A
    reward of at least 1 is correct. digests: of the tasks."""
    known = digests or {}
    sampled = {task: rewards for task, rewards in results.items() if rewards}
    counts = {task: sum(reward >= SOLVED for reward in rewards) for task, rewards in sampled.items()}
    tasks = [
        TaskResult(
            task,
            len(rewards),
            counts[task],
            statistics.fmean(rewards),
            *wilson(counts[task], len(rewards)),
            digest=known.get(task, ""),
        )
        for task, rewards in sampled.items()
    ]
    return summary_of(tasks, ks, [task for task, rewards in results.items() if not rewards], about=about)


def summary_of(
    tasks: Sequence[TaskResult], ks: Sequence[int], unsampled: Sequence[str], *, about: Mapping[str, Any] | None = None
) -> EvalSummary:
    """Make a summary of each task's outcome."""
    fewest = min((task.samples for task in tasks), default=0)
    return EvalSummary(
        tasks=tuple(sorted(tasks, key=lambda task: task.task_id)),
        pass_at={
            k: Estimate.over([pass_at_k(task.samples, task.solved, k) for task in tasks])
            for k in sorted(set(ks))
            if 1 <= k <= fewest
        },
        reward=Estimate.over([task.reward_mean for task in tasks]) if tasks else None,
        unsampled=tuple(sorted(unsampled)),
        about=about or {},
    )
