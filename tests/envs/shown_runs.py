"""Runs on disk, made of rollouts by hand, for the tests of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from samples import rollout, task

from envs.records.atif import RolloutWriter
from envs.records.metrics import Metrics
from envs.running.group import Group
from envs.running.journal import Journal
from envs.runs.index import Index
from envs.tasks.sampler import Draw
from envs.types import GroupState, Rollout, Seat, Verdict


@dataclass(frozen=True, slots=True)
class Made:
    """A group to be made: its task, its members' rewards, and what became of it."""

    task: str
    rewards: Sequence[float]
    state: GroupState = GroupState.DELIVERED
    reason: str = "confirmed by the trainer API"
    step: int = 0


GROUPS = (
    Made("add-numbers", (1.0, 0.0, 0.0, 1.0)),
    Made("parse-dates", (0.0, 0.0, 0.0, 0.0), GroupState.EQUAL, "all rewards are 0", 1),
    Made("add-numbers", (1.0, 1.0, 1.0, 0.0), step=2),
    Made("sort-lines", (0.5, 0.0), GroupState.WORKING, "", 3),
)


def member_of(number: int, made: Made, member: int) -> Rollout:
    """A rollout whose texts say whose it is."""
    reward = made.rewards[member]
    name = f"r-{number}-{member}"
    found = rollout(
        name,
        of=task(made.task, tags=("python", made.task)),
        reward=reward,
        command=f"cat needle_{number}_{member}.py",
        output=f"the haystack of {name}\n",
        seat=Seat(number, member, step=made.step),
    )
    metrics = {"cheat/read_tests": 1.0} if (number, member) == (1, 2) else {}
    return replace(found, verdict=replace(found.verdict, metrics={**found.verdict.metrics, **metrics}))


async def make_run(directory: Path, groups: Sequence[Made] = GROUPS, also: Sequence[Rollout] = ()) -> Path:
    """Write a run's journal, rollouts and metrics. also: rollouts of no group."""
    metrics = Metrics()
    async with Journal(directory) as journal, RolloutWriter(directory) as writer:
        await journal.identify({"group_size": 4})
        for number, made in enumerate(groups):
            group = await Group.draw(journal, lambda _, made=made: Draw(task(made.task)))
            for member in range(len(made.rewards)):
                one = member_of(number, made, member)
                await group.add(member, one, await writer.write(one))
                metrics.count_rollout(one)
            if made.state is not GroupState.WORKING:
                await group.close(made.state, made.reason)
        for one in also:
            await writer.write(one)
            metrics.count_rollout(one)
    metrics.compactions, metrics.tokens_saved = 245, 61_046
    (directory / "metrics.json").write_bytes(metrics.to_json())
    return directory


def evaluated(name: str, solved: bool, of: str = "add-numbers", member: int | None = None) -> Rollout:
    """A rollout of an evaluation."""
    found = rollout(name, of=task(of), reward=float(solved), seat=Seat(member=member, step=2, evaluating=True))
    return replace(found, verdict=Verdict(float(solved), "compared"))


def indexed(directory: Path) -> Index:
    """The index of a run, whole."""
    index = Index(directory)
    while index.advance():
        pass
    return index
