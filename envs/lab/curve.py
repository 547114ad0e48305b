"""The curve of a learning run: the figures of each step and of evaluations, and their certainty."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import orjson

from envs.records.atif import parts
from envs.records.disk import json_lines
from envs.records.metrics import Metrics
from envs.records.read import read_counts, read_from
from envs.records.stats import NO_INTERVAL, Interval, interval, share_interval
from sandboxes.plurals import plural


@dataclass(frozen=True, slots=True)
class RolloutReward:
    """The reward of one rollout, and whether its calls all parsed (and there was one)."""

    reward: float
    parsed: bool


class RolloutTail:
    """Reads an environment's additions to its saved rollouts."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._offset = 0
        self.rollouts: dict[str, RolloutReward] = {}

    def read(self) -> Mapping[str, RolloutReward]:
        """Return all rollouts so far, by id."""
        if parts(self._run_dir):
            for behind, ours in read_from(self._run_dir, self._offset):
                self._offset = behind
                counts = read_counts(ours)
                parsed = counts.tool_calls > 0 and not counts.malformed_calls
                self.rollouts[ours["id"]] = RolloutReward(ours["verdict"]["reward"], parsed)
        return self.rollouts


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Solve rates on held-out tasks after some step. rates: by task; samples: of all tasks together."""

    step: int
    rates: Mapping[str, float]
    samples: int

    @classmethod
    def read(cls, path: Path, step: int) -> Evaluation:
        """Read an evaluation's file. Raises ValueError, with the remedy, for a damaged one."""
        try:
            found = {
                task["task_id"]: (task["solved"], task["samples"]) for task in orjson.loads(path.read_bytes())["tasks"]
            }
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} can't be read ({error}); delete it, and it is made from its samples") from error
        rates = {name: solved / samples for name, (solved, samples) in found.items()}
        return cls(step, rates, sum(samples for _, samples in found.values()))

    @property
    def mean(self) -> float:
        return statistics.fmean(self.rates.values())

    @property
    def interval(self) -> Interval | None:
        """Return the 95% interval of the mean over tasks; None with too few of them."""
        return share_interval([*self.rates.values()])

    def __str__(self) -> str:
        """Return the mean with its interval and its number of values."""
        spread = NO_INTERVAL if self.interval is None else f"95% interval {self.interval:}"
        return f"{self.mean:.0%}, {spread} ({plural(len(self.rates), 'task')}, {plural(self.samples, 'sample')})"


def gain(before: Evaluation, after: Evaluation) -> tuple[float, Interval | None, int]:
    """Return the mean difference over tasks, its 95% interval, and their number: the same tasks are compared."""
    differences = [after.rates[name] - before.rates[name] for name in before.rates if name in after.rates]
    return statistics.fmean(differences), interval(differences), len(differences)


@dataclass(frozen=True, slots=True)
class Rise:
    """Mean group reward in the first and the last third of the steps, and the chance of such a difference, or a larger
    one, by two explanations.

    p_value: the policy has not changed, so the order of groups means nothing. A policy pushed at random
        changes, too, so this value is small more often than it says (below 0.05 in 17 steps: 20% to 30% of simulated
        walks, 5 of 50 runs trained on coin tosses).
    p_wandering: the policy wanders: each step moves it at random, by as much as these steps allow. It is below 0.05
        in at most 5% of simulated walks and in 2 of these 50 runs, and finds one in five of such rises as the presets
        show; None with under five steps.
    """

    first: float
    last: float
    p_value: float
    p_wandering: float | None


def rise(steps: Sequence[Mapping[str, Any]], draws: int = 10_000) -> Rise | None:
    """Compare the first third of the steps with the last; None with under 3 steps."""
    third = len(steps) // 3
    if not third:
        return None
    first = [reward for step in steps[:third] for reward in step["group_rewards"]]
    last = [reward for step in steps[-third:] for reward in step["group_rewards"]]
    seen = statistics.fmean(last) - statistics.fmean(first)
    both, rng, extreme = [*first, *last], random.Random(0), 0  # groups, whose rollouts share a task
    for _ in range(draws):
        rng.shuffle(both)
        difference = statistics.fmean(both[len(first) :]) - statistics.fmean(both[: len(first)])
        extreme += difference >= seen - 1e-12
    p_value = (extreme + 1) / (draws + 1)
    wandering = _random_walk_p_value([step["group_rewards"] for step in steps], third)
    return Rise(statistics.fmean(first), statistics.fmean(last), p_value, wandering)


def _random_walk_p_value(rewards: Sequence[Sequence[float]], third: int) -> float | None:
    """Return the chance of the rise if the mean reward is a random walk, seen with noise.

    The noise is that of the groups of a step. The walk's movement in a step is taken at its upper 90% bound (by the
    chi-squared distribution, after Wilson and Hilferty), since so few steps tell little of it.
    """
    steps = len(rewards)
    if steps < 5:
        return None
    means = [statistics.fmean(groups) for groups in rewards]
    several = [groups for groups in rewards if len(groups) > 1]
    noise = statistics.fmean(statistics.variance(groups) / len(groups) for groups in several) if several else 0.0
    moves = [after - before for before, after in pairwise(means)]
    freedom = len(moves) - 1
    tenth = freedom * (1 - 2 / (9 * freedom) + NormalDist().inv_cdf(0.1) * math.sqrt(2 / (9 * freedom))) ** 3
    step_variance = max(0.0, statistics.variance(moves) * freedom / tenth - 2 * noise)
    # By how much each move counts in the difference of the two thirds.
    shares = [min(1.0, (i + 1) / third, (steps - 1 - i) / third) for i in range(steps - 1)]
    variance = step_variance * sum(share * share for share in shares) + 2 * noise / third
    seen = statistics.fmean(means[-third:]) - statistics.fmean(means[:third])
    return 1.0 if variance == 0 and seen <= 0 else 1 - NormalDist(0, math.sqrt(variance or 1e-12)).cdf(seen)


@dataclass(slots=True)
class Curve:
    """A run's steps and evaluations, read from its directory again and again while it grows."""

    run_dir: Path
    steps: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    _rollouts: RolloutTail = field(init=False)

    def __post_init__(self) -> None:
        self._rollouts = RolloutTail(self.run_dir / "environment")

    def read(self) -> None:
        """Take in the new values."""
        rollouts = self._rollouts.read()
        known = {step["step"] for step in self.steps}
        for line in json_lines(self.run_dir / "trainer/steps.jsonl"):
            if line["step"] in known:
                continue
            mine = [rollouts[name] for name in line["rollout_ids"] if name in rollouts]
            if mine:
                line["solved"] = statistics.fmean(one.reward >= 1.0 for one in mine)
                line["parsed"] = statistics.fmean(one.parsed for one in mine)
            line["failures"] = self._failures()
            self.steps.append(line)
        paths = {int(path.parent.name.removeprefix("eval-")): path for path in self.run_dir.glob("eval-*/eval-*.json")}
        self.evaluations = [Evaluation.read(paths[step], step) for step in sorted(paths)]

    def series(self, name: str) -> list[tuple[float, float]]:
        """Return (step, value) of a figure, for steps with a value; "seconds/train" reaches into `seconds`."""
        points = []
        for line in self.steps:
            outer, _, inner = name.partition("/")
            value = line.get(outer)
            value = value.get(inner) if inner and isinstance(value, dict) else value
            if isinstance(value, int | float) and math.isfinite(value):
                points.append((float(line["step"]), float(value)))
        return points

    def _failures(self) -> int:
        try:
            return Metrics.from_json((self.run_dir / "environment/metrics.json").read_bytes()).failures.total()
        except (OSError, ValueError, TypeError):  # the run writes it again
            return 0
