"""Make an environment of a function. Slow imports wait until a command needs them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atropos_agent.types import FORCIBLE, Branch
from envs.cli import Program, run
from envs.functions.arguments import Hooks
from envs.functions.config import FunctionConfig
from envs.functions.judging import check_score, parameters_of
from envs.functions.tasks import Tasks
from envs.functions.work import GIVEN, ONE_TURN, TRAINED, Work
from envs.messages import current_command
from envs.resources import Prompt
from sandboxes.naming import lazy_import

if TYPE_CHECKING:
    from envs.functions.environment import FunctionEnv


_ENVIRONMENT = lazy_import("envs.functions.environment:environment_of")


class Function:
    """A function as an environment, and still itself: a call does the same as before.

    work: the function, and the decorator's arguments.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        functools.update_wrapper(self, work.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.work.function(*args, **kwargs)

    @functools.cached_property
    def environment(self) -> type[FunctionEnv]:
        """Return the environment's class."""
        made: type[FunctionEnv] = _ENVIRONMENT()(self.work)
        return made

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the command at the beginning of `argv`, the process's own when None. Returns the exit status."""
        return run(Program(current_command(), FunctionConfig, lambda: self.environment), argv)


def rollout(
    *,
    tasks: Tasks,
    eval_tasks: Tasks | None = None,
    resources: Mapping[str, Prompt] | None = None,
    hooks: Sequence[Hooks] = (),
    process: bool = False,
    over_budget: float | None = 0.0,
    trained: Collection[str] = TRAINED,
    tolerates: Collection[str] = (),
) -> Callable[[Callable[..., Any]], Function]:
    """Make an environment of a function, sync or async: `(task, llm, …) -> float | Verdict`.

    The names of its parameters choose its arguments: `task`, `llm`, `sandbox` (open for this rollout), `seat`,
    `config`, and each resource by its name. An exception is an infrastructure failure and retried; for None
    there is no reward.

    tasks, eval_tasks: tasks, or a function that returns them. Without eval_tasks, evaluations use the training tasks.
    resources: prompt templates by name.
    process: call it in a process of its own, killed when it hangs or the run ends. It is given no sandbox
        there, and must be found under its name in its module.
    over_budget: the reward if the function raises after the end of the rollout's tokens, turns or time (its
        client got an error for that); None retries such a rollout, too.
    trained: the kinds of its conversations to train on (`atropos_agent.gateway.branches.Branch`); by default all
        kinds with replies received whole.
    tolerates: its client's demands to accept without forcing them on the model, such as "tool_choice"; else refused
        (see `atropos_agent.gateway.Session`).
    Raises TypeError for a function with other required parameters, and for unknown kinds or demands.
    """
    prompts = dict(resources or {})

    def decorated(function: Callable[..., Any]) -> Function:
        parameters = parameters_of(function, (*GIVEN, *prompts), "the function of a rollout")
        _check(function, parameters, process=process)
        work = Work(
            *(function, parameters, tasks, eval_tasks, prompts, tuple(hooks)),
            process=process,
            over_budget=over_budget,
            trained=trained,
            tolerates=tolerates,
        )
        return Function(work)

    if clash := sorted(set(prompts) & set(GIVEN)):
        raise TypeError(f"resources: {clash[0]!r} is what a function is given in any case; choose another name")
    if wrong := [name for name, prompt in prompts.items() if not isinstance(prompt, Prompt)]:
        raise TypeError(f"resources: {wrong[0]!r} is no Prompt; write Prompt(text)")
    if unknown := [kind for kind in trained if kind not in set(Branch)]:
        raise TypeError(f"trained: {unknown[0]!r} is no kind of conversation; give some of {', '.join(Branch)}")
    if unknown := [name for name in tolerates if name not in FORCIBLE]:
        raise TypeError(f"tolerates: no request has the demand {unknown[0]!r}; give some of {', '.join(FORCIBLE)}")
    return decorated


def single_turn(
    *, tasks: Tasks, score: Callable[..., Any], eval_tasks: Tasks | None = None
) -> Callable[[Callable[..., Any]], Function]:
    """Make an environment of a function with messages as its value, for one reply to them: the simplest case.

    The function is given `prompt`, the task's instruction, or `task`. It returns chat messages, or a text as
    the user's message. score: judges the reply; it is given `task`, `answer` (the reply's text), `result` (the
    `AgentResult`), by the names of its parameters. Raises TypeError for functions with other required parameters.
    """
    check_score(score)

    def decorated(function: Callable[..., Any]) -> Function:
        parameters = parameters_of(function, ONE_TURN, "the function that makes messages")
        return Function(Work(function, parameters, tasks, eval_tasks, score=score))

    return decorated


def _check(function: Callable[..., Any], parameters: Sequence[str], *, process: bool) -> None:
    """Check that a rollout can be made with a function. Raises TypeError."""
    name = function.__name__
    if "llm" not in parameters:
        raise TypeError(f"{name}: without a parameter `llm` it can't ask the model anything; add one")
    if "sandbox" not in parameters:
        pass
    elif process:
        raise TypeError(f"{name}: in a process of its own it can't have the sandbox; leave `process` or `sandbox` out")
    elif not inspect.iscoroutinefunction(function):
        raise TypeError(f"{name}: what a sandbox does is awaited; make it an async function")
    if process and (function.__qualname__ != function.__name__ or function.__module__ not in sys.modules):
        raise TypeError(f"{name}: a process of its own finds it by its name; define it at the top of a module")
