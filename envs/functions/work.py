"""The parts of an environment made of a function: the function, its tasks, its resources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.functions.arguments import Hooks
from envs.functions.config import FunctionConfig
from envs.functions.tasks import Tasks, read_tasks
from envs.resources import Prompt
from envs.types import Task
from sandboxes.naming import did_you_mean

GIVEN = ("task", "llm", "sandbox", "seat", "config")
"""Names of parameters available to a function, beside its resources."""
TRAINED = ("main", "sub-agent", "summary", "retry", "side call")
"""The kinds of conversations trained by default."""
ONE_TURN = ("task", "prompt")
"""The same for a function that returns messages."""


@dataclass(frozen=True)
class Work:
    """The maker of rollouts. See `rollout` and `single_turn`.

    parameters: names of the function's arguments. score: judges the reply to messages; None if the function
        itself returns the reward.
    """

    function: Callable[..., Any]
    parameters: Sequence[str]
    tasks: Tasks
    eval_tasks: Tasks | None = None
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    hooks: Sequence[Hooks] = ()
    process: bool = False
    over_budget: float | None = 0.0
    trained: Collection[str] = TRAINED
    tolerates: Collection[str] = ()
    score: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """Return the environment's name."""
        return self.function.__name__.replace("_", "-").strip("-") or "function"

    def load_tasks(self, config: FunctionConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        """Return the tasks to train on and those to evaluate on. Raises BadTask."""
        train = read_tasks(self.tasks)
        return train, train if self.eval_tasks is None else read_tasks(self.eval_tasks)

    def prompts_with(self, config: FunctionConfig) -> Mapping[str, Prompt]:
        """Return the prompt templates, those from files in place of the function's own. Raises ValueError."""
        found = dict(self.prompts)
        for name, path in config.prompts.items():
            if name not in found:
                known = ", ".join(found) or "no prompt templates"
                raise ValueError(f"--env.prompts.{name}: {self.name} has {known}{did_you_mean(name, found)}")
            try:
                found[name] = found[name].again(path.read_text(encoding="utf-8"), path.name)
            except (OSError, ValueError) as error:
                raise ValueError(f"--env.prompts.{name} {path}: {error}; give a file with a prompt template") from error
        return found
