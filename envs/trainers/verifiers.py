"""Serve an environment as a verifiers (v1) taskset and Env: for `vf-eval`, and for prime-rl's orchestrator.

The loop, sandboxes, verifier and token ids are ours. verifiers names the inference server, the task and the sampling,
and gets traces with our rows as nodes, token for token. A plugin is an installed module of one name; see
examples/atropos_vf.py. Made for verifiers 0.4.0, and for the commit that prime-rl 0.8 pins.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
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
from envs.running.feed import Feed
from envs.tasks.selection import checked
from envs.trainers.named import Runs, named, refuse_advantages, rollout, sound_rows
from envs.types import InfraError

logger = logging.getLogger(__name__)


class AtroposTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]  # it need not be installed
    """The environment's name and options.

    environment: as package.module:Class. options: words of its own command line. held_out: its evaluation tasks."""

    environment: str = "envs.swe.environment:SWEEnv"
    options: list[str] = Field(default=[])
    held_out: bool = False

    @model_validator(mode="after")
    def _without_mistakes(self) -> Self:
        _, options = named(self.environment, self.options)
        refuse_advantages(options.env, "verifiers")
        return self


class AtroposTaskset(vf.Taskset[vf.Task, AtroposTasksetConfig]):  # type: ignore[misc]  # it need not be installed
    """An environment's tasks, each with its id as name. Their hidden parts stay in the environment's process."""

    def load(self) -> Iterable[vf.Task]:
        """Yield them in their own order. Raises SystemExit, with the sentence, for tasks that can't be used: verifiers
        shows other errors as Python does."""
        env_cls, options = named(self.config.environment, self.config.options)
        try:
            tasks = checked(env_cls.load_tasks, options.env)[self.config.held_out]
        except ValueError as error:  # BadTask is one
            raise SystemExit(str(error)) from None
        for number, task in enumerate(tasks):
            yield vf.Task(vf.TaskData(idx=number, name=task.id, prompt=task.instruction), self.config.task)


class AtroposEnvConfig(vf.SingleAgentEnvConfig):  # type: ignore[misc]  # it need not be installed
    """The taskset's and verifiers' retries: its agent, its time limits and its interception do not work here."""

    @model_validator(mode="after")
    def _without_effect(self) -> Self:
        fields = {"agent", "timeout", "max_concurrent_agents", "interception"}
        changed = self.model_dump(include=fields, exclude_defaults=True)
        given = [
            f"--env.{name}{field}"
            for name, value in changed.items()
            for field in ([f".{field}" for field in value] if isinstance(value, dict) else [""])
        ]
        if given:
            raise ValueError(
                f"{', '.join(given)} has no effect: the agent is the environment's, with its own options in "
                "--env.taskset.options; leave it out"
            )
        return self


class AtroposEnv(vf.SingleAgentEnv, vf.Env[AtroposEnvConfig]):  # type: ignore[misc]  # it need not be installed
    """An environment's rollouts as episodes of one trace. verifiers' agent names the model alone: the loop is ours."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Hold the runs opened for requests; verifiers' interception server and its tunnel are not needed."""
        for theirs in logging.getLogger(vf.__name__).handlers:  # of its programs, which mute all loggers but its own
            for name in ("atropos_agent", "envs", "sandboxes", "tools"):
                if not isinstance(theirs, logging.NullHandler):
                    logging.getLogger(name).addHandler(theirs)
        config = self.config.taskset
        async with Runs(config.environment, config.options, "verifiers", Salted, open_env) as self._runs:
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
            fed = await self._fed(ctx)
            trainer = "prime-rl" if ctx.client.type == "train" else None
            decode = fed.run.env.tokenizer.decode
            await rollout(fed, task.data.name, episode.id, lambda given: fill(trace, given, decode, trainer))
        except (InfraError, ValueError, RuntimeError, OSError) as error:
            logger.error("task %s: %s", task.data.name, error)  # verifiers shows its kind alone
            trace.record_error(error)
            episode.errors += trace.errors
        episode.ok = trace.ok
        return episode

    async def _fed(self, ctx: vf.ModelContext) -> Feed[Any, Any]:
        """Return a run at a request's inference server, for its model and sampling."""
        sampling = ctx.sampling.model_dump(exclude_none=True)
        salt = sampling.pop("cache_salt", None)
        if ctx.client.headers:
            raise ValueError(f"client.headers ({', '.join(ctx.client.headers)}) are not sent; leave them out")
        engine = EngineConfig(base_url=ctx.client.base_url, model_name=ctx.model, api_key=resolve_api_key(ctx.client))
        # Ratios are made of what a training client asks for alone.
        fed = await self._runs.run(engine, sampling, training=ctx.client.type == "train")
        for server in fed.run.env.servers:
            if isinstance(server, Salted):
                server.salt = salt
        return fed


class Salted(CompletionsServer):
    """A server that learns the version of its weights from prime-rl: results of other weights are not used again."""

    salt: str | None = None

    def request(self, prompt: list[int], options: dict[str, Any]) -> dict[str, Any]:
        return super().request(prompt, options) | ({} if self.salt is None else {"cache_salt": self.salt})


def fill(trace: vf.Trace, given: Export, decode: Callable[[list[int]], str], trainer: str | None = None) -> None:
    """Write a rollout's rows as nodes, and its reward. trainer: as in `sound_rows`, of which it raises the errors."""
    experts = [read_experts(row.experts) for row in sound_rows(given.scored, trainer) if row.experts is not None]
    (exported,) = [episode["traces"][0] for episode in verifiers_episodes(given)]
    for node in exported["nodes"]:
        node["advantages"] = None  # prime-rl makes them over its own group
        if not node["sampled"]:
            node["message"]["content"] = decode(node["token_ids"])
    (rollout,) = given.rollouts.values()
    calls = float(rollout.result.counts.tool_calls)
    made = vf.WireTrace(**exported, metrics={"verdict": rollout.verdict.reward, "tool_calls": calls})
    for name in ("nodes", "calls", "rewards", "metrics", "is_completed", "ok"):
        setattr(trace, name, getattr(made, name))
    trace.info.update(made.info | {"rollout_id": rollout.id})
    trace.stop(made.stop_condition or "agent_completed")
    if len(experts) == len(given.scored.rows):
        # The last token of a row has none: as in verifiers, the one before stands in for it.
        every = np.concatenate([part for row in experts for part in (row, row[-1:])])
        ends = np.cumsum([len(node.token_ids) for node in trace.nodes])[:-1]
        for one, own in zip(trace.nodes, np.split(every, ends), strict=True):
            one.routed_experts = own


__all__ = ["AtroposEnv", "AtroposTaskset"]
