"""Run an agent or a function on tasks without a trainer, from a script or a notebook.

rollouts = await run(answers, ["What is 6 * 7?"], llm=EngineConfig(base_url="http://localhost:9001/v1"))
rollouts.frame()
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from envs.base import AgentEnv
from envs.cli.starting import check, open_env
from envs.functions.decorator import Function, rollout
from envs.functions.models import function_server
from envs.functions.presets import Agent
from envs.functions.tasks import Tasks, read_tasks
from envs.options import EngineConfig, Options, UsageError
from envs.records.atif import Place
from envs.records.flat import rollout_row
from envs.records.metrics import Metrics
from envs.records.read import SavedRollout, read_at
from envs.running.database import lock_directory
from envs.running.proxies import bypass_proxies_for_loopback
from envs.running.rollouts import Rollouts
from envs.running.run import cancel, follow_load, open_rollouts
from envs.types import InfraError, Seat, Task
from sandboxes.naming import did_you_mean, lazy_import

logger = logging.getLogger(__name__)

_PANDAS = lazy_import("pandas")
CONNECT_S = 60.0
"""Longest wait for a silent inference server, in seconds."""


@dataclass(frozen=True)
class Ran(Sequence[SavedRollout]):
    """The rollouts of `run`, in the order of the tasks, as `read_rollouts(run_dir)` reads them.

    failed: those missing by an infrastructure failure: the task's id, the number of its sample, and the last
    failure.
    """

    rollouts: Sequence[SavedRollout]
    failed: Sequence[tuple[str, int, InfraError]]
    run_dir: Path

    @overload
    def __getitem__(self, place: int) -> SavedRollout: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[SavedRollout]: ...
    def __getitem__(self, place: int | slice) -> SavedRollout | Sequence[SavedRollout]:
        return self.rollouts[place]

    def __len__(self) -> int:
        return len(self.rollouts)

    @property
    def mean_reward(self) -> float:
        """Return the mean reward of the finished rollouts. Raises ValueError without any."""
        if not self.rollouts:
            raise ValueError("no rollout was made; see `failed`")
        return sum(one.verdict.reward for one in self.rollouts) / len(self.rollouts)

    def table(self) -> list[dict[str, object]]:
        """Return a row of plain values for each rollout, as `export` writes them."""
        return [rollout_row(one) for one in self.rollouts]

    def frame(self) -> Any:
        """Return them as a pandas data frame. Raises ImportError without pandas."""
        try:
            return _PANDAS().DataFrame(self.table())
        except ImportError as error:
            raise ImportError("a data frame needs pandas: pip install pandas; `table` needs nothing") from error


async def run(
    agent: Callable[..., Any] | type[AgentEnv[Any]] | Agent,
    tasks: Tasks,
    *,
    llm: EngineConfig | str | Callable[..., Any],
    concurrency: int = 8,
    samples: int = 1,
    progress: bool = True,
    **options: object,
) -> Ran:
    """Have an agent work on tasks, and return the rollouts; they are saved as well.

    agent: a function `(task, llm, …) -> float | Verdict`, decorated or not; a preset of `envs.functions.presets`; or an
    `AgentEnv`. tasks: see `read_tasks`.
    llm: the address of an inference server with token ids, or an `EngineConfig` (its `server_type` may
    be "openai" or "anthropic": no ids, and so no rows); or a function, of chat messages to a text, as the model.
    concurrency: rollouts at the same time. samples: rollouts of each task. options: of the environment, such as
    `max_steps`, `temperature`, `run_dir` or `attempts`.

    A rollout with an infrastructure failure is tried again; one that never succeeds is left out and listed. Raises
    UsageError for unusable arguments, RunDirectoryError when another process works in `run_dir`, NothingWorks when
    no rollout ever succeeds.
    """
    bypass_proxies_for_loopback()
    env_cls = _environment_of(agent, read_tasks(tasks), llm)
    if samples < 1:
        raise UsageError(f"samples: {samples} is too small; give 1 or more")
    settings = {"max_concurrent_rollouts": concurrency, **options}
    try:
        engine = _engine_config(llm)
        config = env_cls.env_config_cls.model_validate(settings)
    except ValidationError as error:
        raise UsageError.of([_describe_option(one, env_cls.env_config_cls) for one in error.errors()]) from error
    if config.run_dir is None:
        config.run_dir = new_run_dir(env_cls.name)
    given = Options(env=config, openai=[engine])
    tokenizer = await check(env_cls, given)
    try:
        async with asyncio.timeout(CONNECT_S):
            env = await open_env(env_cls, "evaluate", given, tokenizer)
    except TimeoutError:
        raise UsageError(f"no inference server answers at {engine.base_url}; start it, or give another llm") from None
    train, _ = await env.ready_tasks()
    wanted = [(task, number) for task in train for number in range(samples)]
    with lock_directory(env.run_dir):
        async with open_rollouts(env, Metrics(), len(train)) as (rollouts, _):
            following = asyncio.create_task(follow_load(env, rollouts.limiter))
            try:
                made, failed = await _make(rollouts, wanted, env.name, shown=progress)
            finally:
                await cancel([following])
    saved = await asyncio.to_thread(lambda: [read_at(env.run_dir, place) for place in made])
    return Ran(tuple(saved), tuple(failed), env.run_dir)


def _describe_option(problem: Any, options: type[BaseModel]) -> str:
    """Return what is wrong with an option, and how. problem: of pydantic's."""
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"{name}: there is no such option{did_you_mean(name, options.model_fields)}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{name}: {message}" if name else message


def new_run_dir(name: str) -> Path:
    """Return a directory not yet present: runs of a script may begin in the same second."""
    first = path = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while path.exists():
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    path.mkdir(parents=True)
    return path


async def _make(
    rollouts: Rollouts, wanted: Sequence[tuple[Task, int]], name: str, *, shown: bool
) -> tuple[list[Place], list[tuple[str, int, InfraError]]]:
    """Make rollouts. Returns the places of the finished ones, and the failed ones."""
    places: dict[int, Place] = {}
    failed: dict[int, tuple[str, int, InfraError]] = {}
    rewards: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        line = bar.add_task(name, total=len(wanted))

        async def make(at: int, task: Task, number: int) -> None:
            try:
                rollout, places[at] = await rollouts.make(task, Seat(member=number))
                rewards.append(rollout.verdict.reward)
            except InfraError as error:
                failed[at] = task.id, number, error
            summary = f"{name}  reward {sum(rewards) / len(rewards):.3f}" if rewards else name
            bar.update(line, advance=1, description=f"{summary}  failed {len(failed)}" if failed else summary)

        making = {asyncio.create_task(make(at, *one)) for at, one in enumerate(wanted)}
        try:
            await asyncio.wait(making, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await cancel(making)
        for one in making:
            if not one.cancelled():
                one.result()
    return [places[at] for at in sorted(places)], [failed[at] for at in sorted(failed)]


def _environment_of(agent: Any, tasks: Sequence[Task], llm: Any) -> type[AgentEnv[Any]]:
    """Return the environment of an agent and these tasks."""
    if isinstance(agent, Agent | Function):
        env_cls: type[AgentEnv[Any]] = agent.environment
    elif isinstance(agent, type) and issubclass(agent, AgentEnv):
        env_cls = agent
    elif callable(agent):
        env_cls = rollout(tasks=tasks)(agent).environment
    else:
        raise UsageError(f"{agent!r} is no agent; give a function, a preset, or a subclass of AgentEnv")
    more: dict[str, object] = {"load_tasks": classmethod(lambda cls, config: (tasks, tasks))}
    if callable(llm):
        more["server_cls"] = staticmethod(function_server(llm))
    return type(env_cls.__name__, (env_cls,), more)


def _engine_config(llm: object) -> EngineConfig:
    """Return the connection to a model given as an address or as a function."""
    if isinstance(llm, EngineConfig):
        return llm
    if isinstance(llm, str):
        return EngineConfig(base_url=llm)
    if callable(llm):
        # Never asked for: the function is the model. A proxy has no part in it.
        name = getattr(llm, "__name__", "function")
        return EngineConfig(base_url="http://127.0.0.1", server_type="openai", model_name=name, api_key="none")
    raise UsageError(f"llm: {llm!r} is no model; give an address, an EngineConfig, or a function")
