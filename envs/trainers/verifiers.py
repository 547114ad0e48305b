"""Serve an environment as a verifiers (v1) taskset and Env: for `vf-eval`, and for prime-rl's orchestrator.

The loop, sandboxes, verifier and token ids are ours. verifiers names the inference server, the task and the sampling,
and gets traces with our rows as nodes, token for token. A plugin is an installed module of one name; see
examples/atropos_vf.py. Made for verifiers 0.4.0, and for the commit that prime-rl 0.8 pins.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

import numpy as np
import verifiers.v1 as vf
from pydantic import Field, model_validator
from verifiers.v1.configs.client import resolve_api_key

from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.tokens.experts import read_experts
from envs.cli.starting import open_env
from envs.delivery.exports import Export, verifiers_episodes
from envs.options import EngineConfig
from envs.tasks.selection import load_checked
from envs.trainers.named import Runs, check_rows, refuse_advantages, refuse_settings, resolve_environment, rollout
from envs.types import InfraError

logger = logging.getLogger(__name__)


class AtroposTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]  # it need not be installed
    """The environment's name and options.

    environment: as package.module:Class. options: words of its own command line. held_out: its evaluation tasks."""

    environment: str = "envs.swe.environment:SWEEnv"
    options: list[str] = Field(default=[])
    held_out: bool = False

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        _, options = resolve_environment(self.environment, self.options)
        refuse_advantages(options.env, "verifiers")
        refuse_settings(self, "--env.taskset", {"task", "system_prompt"})
        return self


class AtroposTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):  # type: ignore[misc]  # it need not be installed
    """One of the environment's tasks, to be played and judged by `AtroposEnv` alone."""

    def hooks(self, attr: str) -> Any:
        """Refuse another Env, another system prompt, and judging again: the reward would not be of what was done."""
        raise NotImplementedError("atropos-agent's Env alone plays and judges its tasks, by --env.taskset.options")

    with_system_prompt = hooks


class AtroposTaskset(vf.Taskset[AtroposTask, AtroposTasksetConfig]):  # type: ignore[misc]  # it need not be installed
    """An environment's tasks, each with its id as name. Their hidden parts stay in the environment's process."""

    def load(self) -> Iterable[AtroposTask]:
        """Yield them in their own order. Raises SystemExit, with the sentence, for tasks that can't be used: verifiers
        shows other errors as Python does."""
        env_cls, options = resolve_environment(self.config.environment, self.config.options)
        try:
            tasks = load_checked(env_cls.load_tasks, options.env)[self.config.held_out]
        except ValueError as error:  # BadTask is one
            raise SystemExit(str(error)) from None
        for number, task in enumerate(tasks):
            yield AtroposTask(vf.TaskData(idx=number, name=task.id, prompt=task.instruction), self.config.task)


class AtroposEnvConfig(vf.SingleAgentEnvConfig):  # type: ignore[misc]  # it need not be installed
    """The taskset's and verifiers' retries: its agent, its time limits and its interception do not work here."""

    @model_validator(mode="after")
    def _refuse_settings(self) -> Self:
        refuse_settings(self, "--env", {"agent", "timeout", "max_concurrent_agents", "interception"})
        return self


class AtroposEnv(vf.SingleAgentEnv, vf.Env[AtroposEnvConfig]):  # type: ignore[misc]  # it need not be installed
    """An environment's rollouts as episodes of one trace. verifiers' agent names the model alone: the loop is ours."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold the runs opened for requests; verifiers' interception server and its tunnel are not needed."""
        for name in ("atropos_agent", "envs", "sandboxes", "tools"):  # its programs mute all loggers but its own
            logging.getLogger(name).parent = logging.getLogger(vf.__name__)
        config = self.config.taskset
        async with Runs(config.environment, config.options, "verifiers", CompletionsServer, open_env) as self._runs:
            yield

    async def run_episode(
        self, task: Any, ctx: vf.ModelContext, *, on_trace: Callable[[vf.Trace], None] | None = None, **_: Any
    ) -> vf.Episode:
        """Make a rollout and return it as an episode; an infrastructure failure is an error of it, without a reward."""
        about = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        agent = vf.AgentInfo(config=self.config.agent.model_copy(update={"model": ctx.model}))
        trace = vf.Trace(task=about, agent=agent)
        episode = vf.Episode(env=vf.EnvInfo(id=self.config.env_id), task=about)
        episode.traces.append(trace)
        if on_trace is not None:
            on_trace(trace)
        try:
            # Ratios are made of what a training client asks for alone.
            sampling, training = ctx.sampling.model_dump(exclude_none=True), ctx.client.type == "train"
            salt = sampling.pop("cache_salt", None)
            if headers := ctx.client.headers | getattr(ctx.client, "headers_from_env", {}):
                raise ValueError(f"client.headers ({', '.join(headers)}) are not sent; leave them out")
            url, key = ctx.client.base_url, resolve_api_key(ctx.client)
            engine = EngineConfig(base_url=url, model_name=ctx.model, api_key=key, **Runs.timeout_of(ctx.client))
            fed = await self._runs.run(engine, sampling, training=training)
            # prime-rl's salt is another one for other weights, of which no results are used again.
            for server in fed.run.env.servers:
                if isinstance(server, CompletionsServer):
                    server.extra = {} if salt is None else {"cache_salt": salt}
            read = partial(fill_trace, trace, fed.run.env.tokenizer.decode, "prime-rl" if training else None)
            await rollout(fed, task.data.name, episode.id, read)
        except (InfraError, ValueError, RuntimeError, OSError) as error:
            logger.error("task %s: %s", task.data.name, error)  # verifiers shows its kind alone
            trace.record_error(error)
            episode.errors += trace.errors
        episode.ok = trace.ok
        return episode


def fill_trace(trace: vf.Trace, decode: Callable[[list[int]], str], trainer: str | None, given: Export) -> None:
    """Write a rollout's rows as nodes, and its reward. trainer: as in `check_rows`, of which it raises the errors."""
    rows = check_rows(given.scored, trainer)
    experts = [read_experts(row.experts) for row in rows if row.experts is not None]
    ((exported,),) = (episode["traces"] for episode in verifiers_episodes(given))
    made = vf.WireTrace(**exported)
    for name in ("nodes", "calls", "rewards", "metrics", "info", "is_completed", "ok", "stop_condition"):
        setattr(trace, name, getattr(made, name))
    for node in trace.nodes:
        node.advantages = None  # prime-rl makes them over its own group
        if not node.sampled:
            node.message.content = decode(node.token_ids)
    if len(experts) == len(rows):
        # The last token of a row has none: as in verifiers, the one before stands in for it.
        every = np.concatenate([part for row in experts for part in (row, row[-1:])])
        ends = np.cumsum([len(node.token_ids) for node in trace.nodes])[:-1]
        for one, own in zip(trace.nodes, np.split(every, ends), strict=True):
            one.routed_experts = own


__all__ = ["AtroposEnv", "AtroposTaskset"]
