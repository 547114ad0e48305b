"""The environment for a model's attacks on tasks: it seeks a reward without doing the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from envs.checking.attack import attacked
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from envs.types import Task


class AttackEnv(SWEEnv):
    """Agents look for gaps in the tests of tasks; only tasks to evaluate on are attacked."""

    name: ClassVar[str] = "attack"

    @classmethod
    def load_tasks(cls, config: SWEEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        train, evaluate = super().load_tasks(config)
        return train, [attacked(task) for task in evaluate]
