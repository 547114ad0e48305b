"""A run's evaluations for the page: their figures with intervals, each attempt, by tag, and over the steps."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from envs.records.comparison import Comparison, NoEvaluation, Rates, compare, difference
from envs.records.stats import Interval, interval, pass_at_k, share_interval, wilson
from envs.runs.index import SEPARATOR
from envs.runs.reader import step_of
from envs.viewer.charts import Chart

_TAG, _AGENT = "tag:", "agent:"
UNTAGGED = "without a tag"


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over tasks, with its 95% interval if there are enough tasks."""

    mean: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sample of a task. place: of its rollout; run: the number of the shown run that holds it. agent: its name."""

    place: int
    run: int
    reward: float
    solved: bool
    agent: str = ""


@dataclass(frozen=True, slots=True)
class EvaluatedTask:
    """A task's samples. attempts: those that are indexed. before: its solve rate in the compared evaluation. digest: of
    the task, "" if unknown."""

    task: str
    samples: int
    solved: int
    attempts: Sequence[Attempt] = ()
    tags: Sequence[str] = ()
    before: float | None = None
    digest: str = ""

    @property
    def rate(self) -> float:
        """Return the solved share."""
        return self.solved / self.samples

    @property
    def reward(self) -> float | None:
        """Return the mean reward of the indexed samples; None without any."""
        return sum(one.reward for one in self.attempts) / len(self.attempts) if self.attempts else None

    @property
    def interval(self) -> Interval:
        """Return its 95% interval (Wilson)."""
        return Interval(*wilson(self.solved, self.samples))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation. step: the trainer's. missing: samples that could not be made. agents: each one's if several."""

    name: str
    step: int
    tasks: Sequence[EvaluatedTask]
    unsampled: Sequence[str] = ()
    missing: int = 0
    over: bool = True
    about: Mapping[str, Any] = field(default_factory=dict)
    agents: Mapping[str, Evaluation] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Return the number of samples."""
        return sum(task.samples for task in self.tasks)

    @property
    def pass_at(self) -> dict[int, Figure]:
        """Return pass@k for 1, 2, 4, … and the most that every task has samples for."""
        fewest = min((task.samples for task in self.tasks), default=0)
        ks = sorted({k for k in (1, 2, 4, 8, 16, 32, 64, fewest) if 1 <= k <= fewest})
        return {k: _figure([pass_at_k(task.samples, task.solved, k) for task in self.tasks], k == 1) for k in ks}

    @property
    def graded(self) -> bool:
        """Tell whether rewards say more than whether a task was solved."""
        return any(one.reward != one.solved for task in self.tasks for one in task.attempts)

    def by_tag(self) -> list[tuple[str, int, Figure]]:
        """Return for each tag the number of its tasks and their pass@1; nothing if no task has a tag."""
        tagged: dict[str, list[float]] = {}
        for task in self.tasks:
            for tag in task.tags or (UNTAGGED,):
                tagged.setdefault(tag, []).append(task.rate)
        if set(tagged) <= {UNTAGGED}:
            return []
        return [(tag, len(rates), _figure(rates, True)) for tag, rates in sorted(tagged.items())]

    def by_agent(self) -> list[tuple[str, Evaluation, str]]:
        """Return each agent's part and its difference from the first one's; nothing without several agents."""
        rates = {agent: of.rates().rates for agent, of in self.agents.items()}
        first = next(iter(rates), "")
        return [(agent, of, difference(rates[first], rates[agent])) for agent, of in self.agents.items()]

    def rates(self) -> Rates:
        """Return what is compared with another evaluation."""
        rates = {task.task: task.rate for task in self.tasks}
        return Rates(rates, self.samples, self.about, {task.task: task.digest for task in self.tasks})


def parse_evaluation(name: str, document: Mapping[str, Any]) -> Evaluation:
    """Return an evaluation as its file has it. Raises KeyError, TypeError or ValueError for a damaged one."""
    tasks = [
        EvaluatedTask(str(one["task_id"]), int(one["samples"]), int(one["solved"]), digest=str(one.get("digest") or ""))
        for one in document["tasks"]
    ]
    about = document.get("about") or {}
    missing = int((about.get("samples") or {}).get("missing", 0))
    unsampled = [str(one) for one in document.get("unsampled") or ()]
    agents = {str(agent): parse_evaluation(name, of) for agent, of in (document.get("agents") or {}).items()}
    sampled = [one for one in tasks if one.samples > 0]
    return Evaluation(name, step_of(name), sampled, unsampled, missing, True, about, agents)


def attempts_in(db: sqlite3.Connection, run: int, step: int) -> dict[str, tuple[list[Attempt], list[str]]]:
    """Return the indexed samples of the evaluation at a step, and the tags, by task. If a killed process had saved a
    sample and not noted it, it was made again: the last one counts."""
    query = (
        "SELECT task, max(place) AS place, reward, solved, labels FROM rollouts WHERE evaluating AND step = ? "
        "GROUP BY task, coalesce(member, 'at ' || place) ORDER BY member, place"
    )
    found: dict[str, tuple[list[Attempt], list[str]]] = {}
    for task, place, reward, solved, labels in db.execute(query, (step,)):
        tags, agents = (
            [label.removeprefix(kind) for label in labels.split(SEPARATOR) if label.startswith(kind)]
            for kind in (_TAG, _AGENT)
        )
        attempts, _ = found.setdefault(task, ([], tags))
        attempts.append(Attempt(place, run, reward, bool(solved), "".join(agents)))
    return found


def with_attempts(
    one: Evaluation | None, found: Mapping[str, tuple[Sequence[Attempt], Sequence[str]]], name: str
) -> Evaluation | None:
    """Return an evaluation with its attempts; one that goes on, and so has no file yet, has only these."""
    if one is None:
        if not found:
            return None
        names = sorted({at.agent for attempts, _ in found.values() for at in attempts})
        agents = {agent: _running_evaluation(name, found, agent) for agent in names} if len(names) > 1 else {}
        return replace(_running_evaluation(name, found), agents=agents)
    known = ((task, *found.get(task.task, ((), ()))) for task in one.tasks)
    return replace(one, tasks=[replace(task, attempts=attempts, tags=tags) for task, attempts, tags in known])


def _running_evaluation(
    name: str, found: Mapping[str, tuple[Sequence[Attempt], Sequence[str]]], agent: str | None = None
) -> Evaluation:
    """Return what is there of an evaluation: of one agent, or all."""
    of = {task: [at for at in attempts if agent in (None, at.agent)] for task, (attempts, _) in sorted(found.items())}
    tasks = [
        EvaluatedTask(task, len(attempts), sum(at.solved for at in attempts), attempts, found[task][1])
        for task, attempts in of.items()
        if attempts
    ]
    return Evaluation(name, step_of(name), tasks, over=False)


def compare_with(one: Evaluation, earlier: Evaluation) -> tuple[Evaluation, Comparison | None]:
    """Return an evaluation with each task's rate in an earlier one, and the comparison; None without common tasks."""
    rates = earlier.rates()
    compared = replace(one, tasks=[replace(task, before=rates.rates.get(task.task)) for task in one.tasks])
    try:
        return compared, compare(rates, one.rates())
    except NoEvaluation:
        return compared, None


def curve(evaluations: Sequence[Evaluation]) -> Chart | None:
    """Return the chart of held-out tasks over the trainer's steps; None with a single step."""
    points = sorted({one.step: one for one in evaluations if one.tasks}.values(), key=lambda one: one.step)
    if len(points) < 2:
        return None
    figures = [one.pass_at for one in points]
    ones = [figure.get(1) for figure in figures]
    spans = [None if one is None else one.interval for one in ones]
    values: dict[str, list[float | None]] = {"pass@1": [None if one is None else one.mean for one in ones]}
    k = max(set.intersection(*(set(figure) for figure in figures)), default=1)
    if k > 1:
        values[f"pass@{k}"] = [figure[k].mean for figure in figures]
    if any(spans):
        values["95% from"] = [None if span is None else span.low for span in spans]
        values["95% to"] = [None if span is None else span.high for span in spans]
    about = "Held-out tasks after each step: the share solved in one attempt, with its 95% interval"
    return Chart("Held-out tasks", about, [one.step for one in points], values, "share")


def _figure(values: Sequence[float], share: bool) -> Figure:
    spread = share_interval(values) if share else interval(values)
    if spread is not None:
        spread = Interval(max(0.0, spread.low), min(1.0, spread.high))
    return Figure(sum(values) / len(values), spread)
