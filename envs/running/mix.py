"""Several agents in one run: which one works on which group, and which ones on a task of an evaluation."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs.types import Task

OURS = {"atropos": "atropos_agent.agent:AtroposAgent"}
"""Our own agents by name, as dotted paths."""

TAG = "agent="
"""Before the name of an agent in a task's tag: the agents with such a tag alone work on the task."""


@dataclass(frozen=True, slots=True)
class Mix:
    """The agents of a run, by the names of `--env.agent`, and how often each is drawn, in parts."""

    names: Sequence[str]
    weights: Sequence[float]

    @classmethod
    def of(cls, option: str) -> Mix:
        """Read `--env.agent`: one agent, or several as `codex:1,pi:2`. Raises ValueError."""
        weights: dict[str, float] = {}
        for part in option.split(","):
            name, colon, weight = part.strip().rpartition(":")
            if not (colon and weight.replace(".", "", 1).isdecimal()):
                name, weight = part.strip(), "1"  # a colon of package.module:Class
            if not name or name in weights or not 0 < float(weight) < math.inf:
                raise ValueError(f'--env.agent {option}: give each agent once, with a weight above 0: "codex:1,pi:2"')
            weights[name] = float(weight)
        return cls(tuple(weights), tuple(weights.values()))

    def pick(self, task: Task, seed: int, of: int) -> str:
        """Return the agent for a group of this task: the same for the same seed and group. "" for a run with one agent.

        of: the group's number. It is drawn among `of_task`, by weight."""
        names = self.of_task(task)
        if len(names) == 1:
            return names[0]
        weights = [self.weights[self.names.index(name)] for name in names]
        return random.Random(f"agent/{seed}/{of}").choices(names, weights)[0]

    def of_task(self, task: Task) -> Sequence[str]:
        """Return the agents for a task: those named by its tags if there are any, else all. "" for a run with one."""
        if len(self.names) == 1:
            return ("",)
        return [name for name in self.names if f"{TAG}{name}" in task.tags] or self.names


ALONE = Mix(("",), (1.0,))
"""A run with one agent."""
