"""Open an environment named in another trainer's configuration, and make rollouts for that trainer."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from envs.base import AgentEnv
from envs.config import AgentEnvConfig
from envs.delivery.exports import refuse_own_advantages
from envs.delivery.rows import Row, ScoredGroup
from envs.options import EngineConfig, Options
from envs.options.reading import read_options
from envs.rewards import Shaping, find_reward
from envs.running.database import DirectoryInUse
from envs.running.feed import Feed, feed
from envs.running.sinks import TrainerGroup
from envs.types import Failure, InfraError
from sandboxes.naming import resolve
from sandboxes.shielding import await_shared, stop

logger = logging.getLogger(__name__)

T = TypeVar("T")
MakeNamedEnv = Callable[[type[AgentEnv[Any]], str, Options], Awaitable[AgentEnv[Any]]]


def resolve_environment(environment: str, options: Sequence[str]) -> tuple[type[AgentEnv[Any]], Options]:
    """Return an environment's class and the values of its options.

    environment: as package.module:Class. options: words of its command line, such as --env.tasks=tasks.
    Raises UsageError, ValueError."""
    env_cls: type[AgentEnv[Any]] = resolve("environment", environment, {})
    return env_cls, read_options(env_cls.env_config_cls, options)


def refuse_weight(config: AgentEnvConfig, trainer: str) -> None:
    """Raise ValueError if a teacher is to give tokens advantages of their own, for a trainer without a place for
    them."""
    if config.teacher_weight:
        raise ValueError(
            f"--env.teacher_weight gives each token an advantage of its own, and {trainer} takes none; leave it out, "
            "or train with Atropos' API or tinker (docs/teachers.md)"
        )


def refuse_advantages(config: AgentEnvConfig, trainer: str) -> None:
    """Raise ValueError for options of the advantages, for a trainer that makes them of the rewards."""
    refuse_weight(config, trainer)
    if given := config.changed_options(_ADVANTAGE_OPTIONS):
        options = " and ".join(f"--env.{name}" for name in given)
        raise ValueError(f"leave out {options}: {trainer} makes the advantages itself")
    reward = find_reward("--env.reward", config.reward) if config.reward else None
    if isinstance(reward, Shaping) and (reward.turn_malformed or reward.turn_error):
        raise ValueError(
            f"--env.reward {config.reward}: turn_malformed and turn_error give turns advantages of their own, and "
            f"{trainer} makes one of the reward; leave them 0, or train with Atropos' API (docs/reward.md)"
        )


def refuse_settings(config: Any, option: str, fields: set[str]) -> None:
    """Raise ValueError naming settings of a trainer's own agent and scoring, which do not work here.

    config: a pydantic model, found under `option`; fields: those without an effect."""
    if given := config.model_dump(include=fields, exclude_defaults=True):
        settings = ", ".join(f"{option}.{name} {value}" for name, value in given.items())
        raise ValueError(f"{settings} has no effect: agent and reward are those of --env.taskset.options; leave it out")


_ADVANTAGE_OPTIONS = ("estimator", "length_penalty", "summary_weight")
SAMPLING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}
SAMPLING |= {"max_tokens": "max_reply_tokens"}
_OFF = {"top_k": (-1, 0), "min_tokens": (0,), "repetition_penalty": (1,), "n": (1,)}
_OFF |= {"frequency_penalty": (0,), "presence_penalty": (0,)}
"""Values without an effect."""


def sampling_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for another trainer's sampling settings. Raises ValueError for a setting without an effect
    here."""
    effective = {name: value for name, value in given.items() if value is not None and value not in _OFF.get(name, ())}
    if strange := sorted(effective.keys() - SAMPLING.keys()):
        raise ValueError(f"sampling settings that have no effect here: {', '.join(strange)}; remove them")
    return {SAMPLING[name]: value for name, value in effective.items()}


async def make_env(env_cls: type[AgentEnv[Any]], command: str, options: Options) -> AgentEnv[Any]:
    """Make the environment for a trainer that brings its own inference server: none is looked for."""
    return env_cls(options.env, options.engines)


class Runs:
    """The runs of a named environment, one for each inference server, model and sampling asked for by a trainer. Use it
    as `async with`.

    trainer: its name, for the default of `--env.run_dir`. server_cls: makes the inference server's client. make: makes
    the environment. own: a part of the names of their directories."""

    def __init__(
        self,
        environment: str,
        options: Sequence[str],
        trainer: str,
        server_cls: Callable[..., Any],
        make: MakeNamedEnv = make_env,
        own: str = "",
    ) -> None:
        env_cls, self.options = resolve_environment(environment, options)
        self._named = environment, *options
        refuse_advantages(self.options.env, trainer)
        self._env_cls = type(env_cls.__name__, (env_cls,), {"server_cls": staticmethod(server_cls)})
        self._root, self._make = self.options.env.run_dir or Path("runs") / f"{trainer}-{env_cls.name}", make
        self._own = own
        self._held: dict[str, _OpenRun] = {}

    @staticmethod
    def timeout_of(client: Any) -> dict[str, Any]:
        """Return the option for the timeout of verifiers' client, in whole seconds; nothing if it has none."""
        seconds = getattr(getattr(client, "timeout", None), "read", None)
        return {"timeout": math.ceil(seconds)} if seconds else {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all runs."""
        await stop(self.end())

    def end(self) -> list[asyncio.Task[None]]:
        """Begin to close all runs. Returns the tasks that do."""
        tasks = [held.holding for held in self._held.values()]
        for task in tasks:
            task.cancel()
        return tasks

    async def run(
        self, engine: EngineConfig, sampling: Mapping[str, Any], *, training: bool, **env: Any
    ) -> Feed[Any, Any]:
        """Return the open run of these; opened if there is none, and again if it has ended.

        sampling: the trainer's settings. training: ratios are made of it. env: further options."""
        key = repr((*self._named, engine.base_url, engine.model_name, sorted(sampling.items()), training))
        loop, held = asyncio.get_running_loop(), self._held.get(key)
        if held is not None and held.opened.get_loop() is not loop:
            held = None  # that loop has closed it at its end
        if held is None or held.ended:
            folder = self._root / f"{hashlib.blake2b(key.encode(), digest_size=6).hexdigest()}{self._own}"
            env |= {**sampling_of(sampling), "run_dir": folder}
            options = self.options.model_copy(
                update={"env": self.options.env.model_copy(update=env), "openai": [engine]}
            )
            opened: asyncio.Future[Feed[Any, Any]] = loop.create_future()
            holding = self._keep_open(
                "feed" if training else "process", options, opened, None if held is None else held.holding
            )
            held = self._held[key] = _OpenRun(opened, loop.create_task(holding, name=f"run in {folder}"))
        return await await_shared(held.opened)

    async def _keep_open(
        self, command: str, options: Options, opened: asyncio.Future[Feed[Any, Any]], before: asyncio.Task[None] | None
    ) -> None:
        """Open a run when the one before is closed, and keep it open until it ends."""
        try:
            if before is not None:
                await asyncio.wait([before])
            async with AsyncExitStack() as stack:
                fed = await self._open(command, options, stack)
                opened.set_result(fed)
                await fed.done()
        except Exception as error:  # of whatever ends a run; it is raised where it is asked
            if opened.done():
                logger.error("the run in %s has ended: %s; the next request opens it again", options.env.run_dir, error)
            else:
                opened.set_exception(error)
        except asyncio.CancelledError:
            opened.cancel()
            raise

    async def _open(self, command: str, options: Options, stack: AsyncExitStack) -> Feed[Any, Any]:
        """Open a run in its directory, or beside it while other worker processes of the trainer work there."""
        first, number = Path(options.env.run_dir), 1
        while True:
            try:
                env = await self._make(self._env_cls, command, options)
                return await stack.enter_async_context(feed(env, command=command))
            except DirectoryInUse:
                number += 1
                place = {"run_dir": first.with_name(f"{first.name}-{number}")}
                options = options.model_copy(update={"env": options.env.model_copy(update=place)})


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """A run, and the task that keeps it open."""

    opened: asyncio.Future[Feed[Any, Any]]
    holding: asyncio.Task[None]

    @property
    def ended(self) -> bool:
        """Tell whether nothing can be asked of it any more."""
        if not self.opened.done():
            return False
        return self.opened.cancelled() or self.opened.exception() is not None or self.opened.result().ended


async def rollout(
    fed: Feed[Any, Any], task: str, name: str, read: Callable[[TrainerGroup], T], max_tokens: int | None = None
) -> T:
    """Make a rollout and return what `read` makes of it. The run is done with it then, also if `read` raises."""
    given = await fed.ask(task, members=1, name=name, max_tokens=max_tokens)
    try:
        return read(given)
    finally:
        await fed.confirm([given.name])


def task_of(named: Any, place: str) -> str:
    """Return the id of a task that a row of a trainer's dataset names in a place of it. Raises ValueError."""
    if not isinstance(named, str) or not named:
        raise ValueError(f"a row of the dataset has {named!r} as its {place}: give the id of one of --env.tasks")
    return named


def check_rows(scored: ScoredGroup, trainer: str | None) -> Sequence[Row]:
    """Return a rollout's rows. trainer: makes the advantages of rewards; None in evaluations.

    Raises InfraError if none equals the record, ValueError if turns have advantages that the trainer can't take."""
    if not scored.rows:
        raise InfraError(Failure.ROW, "; ".join(row.reason for row in scored.dropped))
    if trainer is not None:
        refuse_own_advantages(scored.rows, trainer)
    return scored.rows
