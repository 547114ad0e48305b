"""The overview's charts: lines over the trainer's steps, and over time."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from envs.records.metrics import Metrics
from envs.records.stats import percent

POINTS = 400
"""Points of a line, at most; more are joined."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over common places. values: by name; None for a gap. over: "step" or "time" (Unix). form: "share", "count"
    or "number". about: a sentence on the chart. filled: lines stand on each other."""

    title: str
    about: str
    x: Sequence[float]
    values: Mapping[str, Sequence[float | None]]
    form: str = "number"
    over: str = "step"
    filled: bool = False

    @property
    def has_line(self) -> bool:
        """Tell whether any of its lines has two points: a single dot shows no course."""
        return any(sum(value is not None for value in line) > 1 for line in self.values.values())

    @property
    def summary(self) -> str:
        """Return the chart in words: each line's last figure, its least and its greatest."""
        form = partial(percent, decimals=1) if self.form == "share" else _short
        return " ".join(
            f"{name}: {form(known[-1])} at the end, from {form(min(known))} to {form(max(known))}."
            for name, line in self.values.items()
            if (known := [value for value in line if value is not None])
        )

    def to_json(self) -> dict[str, Any]:
        """Return the chart for the page's script."""
        return {
            "x": self.x,
            "names": list(self.values),
            "values": list(self.values.values()),
            "form": self.form,
            "over": self.over,
            "filled": self.filled,
        }


Sums = Mapping[str, float]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def step_sums(db: sqlite3.Connection, *, evaluating: bool) -> list[Sums]:
    """Return the sums of each step; with more steps than points, of several together."""
    (steps,) = db.execute("SELECT count(*) FROM steps WHERE evaluating = ?", (evaluating,)).fetchone()
    joined = max(1, -(-steps // POINTS))
    columns = [row[1] for row in db.execute("PRAGMA table_info(steps)") if row[1] not in ("step", "evaluating")]
    summed = ", ".join(f"sum({name}) AS {name}" for name in columns)
    # Neighbours in their order are joined, whatever their numbers.
    query = (
        f"SELECT min(step) AS step, max(step) AS last, {summed} FROM "
        "(SELECT *, row_number() OVER (ORDER BY step) - 1 AS place FROM steps WHERE evaluating = ?) "
        "GROUP BY place / ? ORDER BY step"
    )
    return [dict(row) for row in db.execute(query, (evaluating, joined))]


def step_charts(sums: Sequence[Sums], metrics: Metrics | None, trainer: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return the charts over the trainer's steps. trainer: its own lines, if they are known."""
    if not sums:
        return []
    x = [line["step"] for line in sums]

    def each(top: str, bottom: str = "rollouts") -> list[float | None]:
        return [line[top] / line[bottom] if line[bottom] else None for line in sums]

    def rest(line: Sums) -> float | None:
        known = line["open_s"] + line["engine_s"] + line["tools_s"] + line["verifier_s"]
        return max(0.0, line["seconds"] - known) / line["rollouts"] if line["rollouts"] else None

    charts = [
        Chart("Reward", "Mean reward of a rollout, and the share that the verifier calls solved", x,
              {"reward": each("reward"), "solved": each("solved")}),
        Chart("Length", "Tokens of a rollout: all of its rows, and those that were sampled", x,
              {"tokens": each("tokens"), "sampled": each("sampled")}, "count"),
        Chart("Turns", "Turns of a rollout, its tool errors and its malformed calls", x,
              {"turns": each("turns"), "tool errors": each("tool_errors"), "malformed calls": each("malformed")}),
        Chart("Entropy", "Mean -logprob of the sampled tokens, in nats: what the policy's entropy is where it sampled",
              x, {"entropy": each("surprise", "sampled")}),
        Chart("Staleness", "Trainer's steps that the oldest weights of a rollout were behind when it began", x,
              {"steps behind": each("stale", "dated")}),
        Chart("Where the time goes", "Seconds of a rollout, by phase", x,
              {"sandbox": each("open_s"), "inference server": each("engine_s"), "tools": each("tools_s"),
               "verifier": each("verifier_s"), "rest": [rest(line) for line in sums]}, filled=True),
        Chart("Signs of cheating", "Share of rollouts that show any sign", x, {"rollouts": each("cheated")}, "share"),
    ]  # fmt: skip
    if metrics is not None and metrics.failures_by_step:
        charts.append(_failures(metrics))
    return [*charts, *_trainer_charts(trainer)]


def pool_charts(db: sqlite3.Connection) -> list[Chart]:
    """Return the chart of the groups' rewards over the trainer's steps; none with a single step."""
    groups = (
        "SELECT min(step) AS step, min(reward) AS least, max(reward) AS most FROM rollouts "
        "WHERE NOT evaluating AND grp IS NOT NULL AND reward IS NOT NULL GROUP BY grp HAVING count(*) > 1"
    )
    pools = (
        f"SELECT step, sum(most <= 0) AS none, sum(least < most) AS differ, sum(least = most AND most > 0) AS same "
        f"FROM ({groups}) GROUP BY step"
    )
    # Neighbours are joined as in `step_sums`.
    query = (
        "SELECT min(step) AS step, sum(none) AS none, sum(differ) AS differ, sum(same) AS same FROM "
        f"(SELECT *, row_number() OVER (ORDER BY step) - 1 AS place, count(*) OVER () AS steps FROM ({pools})) "
        "GROUP BY place / max(1, (steps + ? - 1) / ?) ORDER BY step"
    )
    found = [dict(row) for row in db.execute(query, (POINTS, POINTS))]
    if len(found) < 2:
        return []
    names = {"rewards differ": "differ", "all 0": "none", "all alike, above 0": "same"}
    values = {label: [float(line[name]) for line in found] for label, name in names.items()}
    about = "Groups by their rewards: only where they differ is something to be learnt"
    return [Chart("Groups with signal", about, [line["step"] for line in found], values, "count", filled=True)]


def time_charts(lines: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return the charts over time, of a run's timeline."""
    samples = _thinned([line for line in lines if "sampled" in line])
    if len(samples) < 2:
        return []
    x = [float(line["t"]) for line in samples]

    def rate(name: str) -> list[float | None]:
        found: list[float | None] = [None]
        for before, now in pairwise(samples):
            gone, made = now["t"] - before["t"], now[name] - before[name]
            # A new start counts from where metrics.json stood; what lies between is not known.
            found.append(made / gone if gone > 0 and made >= 0 else None)
        return found

    def each(of: Callable[[Mapping[str, Any]], float | None]) -> list[float | None]:
        return [of(line) for line in samples]

    return [
        Chart("Tokens a second", "Sampled tokens of judged rollouts", x, {"tokens/s": rate("sampled")}, over="time"),
        Chart("Concurrency", "Rollouts that may run at the same time, and those that do", x,
              {"limit": each(lambda line: line.get("limit")), "running": each(lambda line: line.get("active"))},
              "count", "time"),
        Chart("Queue and outbox", "Groups that are worked on; packets that wait for the trainer API, or in its queue",
              x,
              {"groups": each(lambda line: line.get("working")),
               "outbox": each(lambda line: _packets(line, "waiting", "ready", "sending")),
               "trainer's queue": each(lambda line: _packets(line, "queued"))}, "count", "time"),
    ]  # fmt: skip


def changes(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the changes of the concurrency limit, newest first."""
    return [line for line in reversed(lines) if "why" in line]


def _failures(metrics: Metrics) -> Chart:
    by_step = metrics.failures_by_step
    steps = sorted(by_step, key=int)
    total: Counter[str] = Counter()
    for counts in by_step.values():
        total.update(counts)
    values = {kind: [float(by_step[step].get(kind, 0)) for step in steps] for kind, _ in total.most_common()}
    return Chart(
        "Infrastructure failures", "By kind; each was retried, none is a reward", list(map(int, steps)), values, "count"
    )


def _trainer_charts(lines: Sequence[Mapping[str, Any]]) -> list[Chart]:
    lines = [line for line in lines if isinstance(line.get("step"), int)]
    x = [line["step"] for line in lines]
    charts = []
    for title, about, names in (
        ("The trainer's entropy", "Of the policy that is trained, in nats a token", ("entropy",)),
        ("The trainer's lag", "Steps between a row's weights and the update that used it", ("lag",)),
    ):
        values = {name: [line.get(name) for line in lines] for name in names}
        if any(value is not None for line in values.values() for value in line):
            charts.append(Chart(title, about, x, values))
    return charts


def _thinned(lines: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    every = max(1, -(-len(lines) // POINTS))
    return [*lines[:-1:every], *lines[-1:]]


def _packets(line: Mapping[str, Any], *states: str) -> float:
    return float(sum((line.get("outbox") or {}).get(state, 0) for state in states))
