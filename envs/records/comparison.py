"""Two evaluations compared task by task, and the agents of one side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from envs.records.stats import NO_INTERVAL, EvalSummary, Interval, interval, pass_at_k, percent, share_interval
from envs.records.tables import Sheet
from sandboxes.plurals import plural


class NoEvaluation(ValueError):
    """A file holds no evaluation; the message names it."""


UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""What reading a foreign file raises."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Solve rates by task. samples: in all. about: conditions of the evaluation, and digests: of its tasks, as far as
    the file has them."""

    rates: Mapping[str, float]
    samples: int
    about: Mapping[str, Any]
    digests: Mapping[str, str] = field(default_factory=dict)


def read_rates(path: Path) -> Rates:
    """Read the solve rates of an evaluation's file. Raises NoEvaluation."""
    try:
        found = orjson.loads(path.read_bytes())
        rates = {str(task["task_id"]): task["solved"] / task["samples"] for task in found["tasks"]}
        about = found.get("about") or {}
        if not isinstance(about, dict) or not isinstance(about.get("sampling") or {}, dict):
            raise TypeError
        digests = {str(task["task_id"]): str(task.get("digest", "")) for task in found["tasks"]}
        return Rates(rates, sum(task["samples"] for task in found["tasks"]), about, digests)
    except (*UNREADABLE, ZeroDivisionError) as error:
        why = why_unreadable(error)
        raise NoEvaluation(
            f"{path} is no file of an evaluation ({why}); `evaluate` writes eval-0.json in its run_dir"
        ) from error


def differences(there: Any, here: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """Return each place at which two evaluations' conditions differ, with both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        names = sorted(there.keys() | here.keys())
        return [one for name in names for one in differences(there.get(name), here.get(name), f"{place}{name}.")]
    return [] if there == here else [(place.rstrip("."), there, here)]


def why_unreadable(error: Exception) -> str:
    """Return why an evaluation's file can't be read, for one of `UNREADABLE`."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return f"line {error.lineno} is no JSON" if isinstance(error, orjson.JSONDecodeError) else "its values are others"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Gain in solve rates over the common tasks.

    difference: mean over tasks of the differences of solve rates. interval: its 95% interval; None with too few tasks,
    or equal differences.
    """

    difference: float
    interval: Interval | None
    tasks: int
    only_before: int
    only_now: int
    samples_before: int
    samples_now: int
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it in words, with how much stands behind it."""
        spread = NO_INTERVAL if self.interval is None else f"95% interval {self.interval:+}"
        text = (
            f"difference {percent(self.difference, '+')}, {spread}: paired over {plural(self.tasks, 'task')} "
            f"({plural(self.samples_before, 'sample')} before, {self.samples_now} now)"
        )
        if self.only_before or self.only_now:
            text += f"; tasks only in the earlier one: {self.only_before}, only in this one: {self.only_now}"
        return "\n".join([text, *(f"not the same: {what}" for what in self.changed)])


def compare(before: Rates, now: Rates) -> Comparison:
    """Compare two evaluations. Raises NoEvaluation if they have no task in common."""
    both = sorted(before.rates.keys() & now.rates.keys())
    if not both:
        raise NoEvaluation("the two evaluations have no task in common")
    gains = [now.rates[task] - before.rates[task] for task in both]
    then, today = (one.about.get("sampling") or {} for one in (before, now))
    differing = differences(then, today) if then and today else []
    changed = [f"{name} {old!r} then, {new!r} now" for name, old, new in differing]
    digests = [(before.digests.get(task), now.digests.get(task)) for task in both]
    if edited := [task for task, (old, new) in zip(both, digests, strict=True) if old and new and old != new]:
        changed.append(f"{plural(len(edited), 'task')} edited in between, such as {edited[0]}")
    return Comparison(
        sum(gains) / len(gains),
        interval(gains),
        len(both),
        len(before.rates) - len(both),
        len(now.rates) - len(both),
        before.samples,
        now.samples,
        tuple(changed),
    )


def difference(before: Mapping[str, float], now: Mapping[str, float]) -> str:
    """Return the gain in solve rates over the common tasks, with its 95% interval if there is one."""
    try:
        found = compare(Rates(before, 0, {}), Rates(now, 0, {}))
    except NoEvaluation:
        return "—"
    return percent(found.difference, "+") + ("" if found.interval is None else f" {found.interval:+}")


def table_of(summary: EvalSummary) -> Sheet:
    """Return the table of an evaluation: a line for each task, or for each agent if there are several."""
    return _by_agent(summary.agents) if summary.agents else summary.render()


def _by_agent(agents: Mapping[str, EvalSummary]) -> Sheet:
    first, *_ = agents
    ks = sorted({k for of in agents.values() for k in of.pass_at})
    heads = ("tasks", "solved", *(f"pass@{k}" for k in ks), "mean reward", f"pass@1 − {first}")
    table = Sheet("agent", *heads, title="in brackets: 95% intervals; differences are paired by task", right=heads)
    rates = {agent: {task.task_id: task.solved / task.samples for task in of.tasks} for agent, of in agents.items()}
    for agent, of in agents.items():
        passes = (
            _share([pass_at_k(task.samples, task.solved, k) for task in of.tasks]) if k in of.pass_at else "—"
            for k in ks
        )
        gain = "" if agent == first else difference(rates[first], rates[agent])
        reward = "—" if of.reward is None else f"{of.reward.mean:.3f}"
        table.add(agent, str(len(of.tasks)), of.solved, *passes, reward, gain)
    return table


def _share(rates: Sequence[float]) -> str:
    spread = share_interval(rates)
    return percent(sum(rates) / len(rates)) + ("" if spread is None else f" {spread}")
