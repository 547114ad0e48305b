"""The software engineering environment: a task, a sandbox, an agent in it, hidden tests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar

from atropos_agent.agent import AtroposAgent
from atropos_agent.tracing import opening, span
from atropos_agent.types import AgentResult
from envs.agents.foreign import ForeignAgent
from envs.agents.guests import Guest, Guests
from envs.agents.named import find_agent
from envs.agents.watched import WatchedSession
from envs.base import AGENTS, AgentEnv
from envs.judging.changes import Changes, collect_changes
from envs.judging.cheating import with_signs
from envs.judging.manifest import NAME as MANIFEST
from envs.judging.prefetch import Prefetch
from envs.judging.specs import agent_spec
from envs.judging.start_trees import StartTrees
from envs.judging.steps import combined, joined, work_in_steps
from envs.judging.stored import packed
from envs.judging.verifier import open_verifier
from envs.judging.watched import select
from envs.running.telemetry import traced
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.tasks.buildable import ask, unusable
from envs.tasks.harbor import load_tasks
from envs.tasks.selection import checked, of_use, shard, solved_shares, split, tagged
from envs.types import BadTasks, Failure, InfraError, Outcome, Seat, Task
from sandboxes.base import Backend, Sandbox, SandboxError, SandboxSpec
from sandboxes.docker import PoolLimits
from sandboxes.docker.crun.possible import Obstacle, find_crun
from sandboxes.docker.daemon import connect
from sandboxes.fleet import Host, read_hosts
from sandboxes.local import LocalBackend
from sandboxes.registry import load_backend, named_factory
from tools import ToolRegistry, check_names, default_tools

logger = logging.getLogger(__name__)

_NOT_LOCAL = (
    "--env.sandbox local: nothing is isolated there, and the hidden tests of these tasks would run on this machine; "
    "use --env.sandbox docker"
)


class SWEEnv(AgentEnv[SWEEnvConfig]):
    """Agents fix repositories in containers; what they changed is judged in a fresh one."""

    name: ClassVar[str] = "swe"
    env_config_cls = SWEEnvConfig

    @classmethod
    def load_tasks(cls, config: SWEEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        tasks = load_source(config.tasks, config.manifest, config.bad_tasks)
        others = load_source(config.eval_tasks, None, config.bad_tasks) if config.eval_tasks else tasks
        if config.eval_share and not config.eval_tasks:
            tasks, others = split(tasks, config.eval_share, config.seed)
        chosen = tagged(tasks, config.tags, "--env.tags", without=config.skip_tags)
        train = shard(select(chosen, config.unwatched), config.shard, config.seed)
        evaluate = tagged(others, config.eval_tags, "--env.eval_tags", without=config.skip_tags)
        evaluate = shard(evaluate, config.shard, config.seed, least=0)
        if config.difficulty_from:
            train = of_use(train, solved_shares(config.difficulty_from), config.difficulty_rollouts)
        return train, evaluate

    async def ready_tasks(self) -> tuple[Sequence[Task], Sequence[Task]]:
        parts = self.tasks()
        if self.config.sandbox != "docker" or self.config.workers != "process":
            return parts
        every = {task.id: task for part in parts for task in part}
        problems = await _unusable(every, self.config)
        if not problems:
            return parts
        train, evaluate = ([task for task in part if task.id not in problems] for part in parts)
        others = [task for name, task in every.items() if name not in problems]
        error = BadTasks("tasks", list(problems.values()), others)
        if self.config.bad_tasks == "refuse" or (parts[0] and not train) or (parts[1] and not evaluate):
            raise error
        logger.warning("%s\nThe %d others are used", error, len(others))
        return train, evaluate

    @classmethod
    async def preflight(cls, config: SWEEnvConfig) -> None:
        problems: list[Exception] = []
        try:
            await super().preflight(config)
        except ExceptionGroup as group:
            problems += group.exceptions
        problems += check_names(config.tools)
        problems += _check_opening(config)
        try:
            if named_factory(config.sandbox) is LocalBackend:
                problems.append(ValueError(_NOT_LOCAL))
            if config.sandbox == "docker" and config.workers == "process":  # else the nodes' own are used
                await _check_daemons(config)
        except (SandboxError, ValueError) as error:
            problems.append(error)
        if problems:
            raise ExceptionGroup("the environment can't be used as it is", problems)
        for folder in unchecked(config.tasks, config.manifest, config.eval_tasks):
            logger.warning(
                "%s has no manifest, so nobody has seen that its tasks can be solved, or not without work: "
                "`python -m envs.swe tasks check %s` makes one",
                *(folder, folder),
            )

    @classmethod
    def find_agent(cls, name: str) -> type[AtroposAgent]:
        found = find_agent(name, AGENTS)
        return AtroposAgent if isinstance(found, ForeignAgent) else found

    def make_backend(self) -> Backend:
        """Return what makes the sandboxes."""
        warm = self.config.warm_sandboxes
        return load_backend(
            self.config.sandbox,
            hosts=self.config.hosts,
            base_image=self.config.base_image,
            pool=PoolLimits(each=warm) if warm else None,
            runtime=self.config.sandbox_runtime,
            starter=self.config.sandbox_starter,
        )

    def make_tools(self, sandbox: Sandbox) -> ToolRegistry:
        """Return the tools of one rollout."""
        return default_tools(sandbox, self.config.tools)

    async def setup(self, resources: AsyncExitStack) -> None:
        self.backend = await resources.enter_async_context(self.make_backend())
        agent = find_agent(self.config.agent, AGENTS)
        self.guests = Guests(agent, self.backend) if isinstance(agent, ForeignAgent) else None
        prefetch = Prefetch(self.backend, self.config.warm_sandboxes, self._complete)
        self.prefetch = await resources.enter_async_context(prefetch)
        self.starts = StartTrees(self.backend)

    def expect(self, task: Task) -> None:
        self.prefetch.begin(task)

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        with span("sandbox image"):
            image = await self.backend.ensure_image(task.image, task.context)
        if task.steps:
            return await self._attempt_steps(task, seat, image)
        with span("sandbox start tree"):
            start = await self.starts.get(task, image)
        began = time.monotonic()
        spec, guest = await self._invited(agent_spec(task, image))
        async with opening("verifier", open_verifier(self.backend, task, image)) as verify:
            async with opening("sandbox", self.backend.open(spec)) as sandbox:
                opened = time.monotonic()
                result = await self._work(task, seat, traced(sandbox), self.config.rollout_timeout_s, guest)
                worked = time.monotonic()
                with span("sandbox changes"):
                    changes = await collect_changes(sandbox, start, task.hidden.protected)
            with span("verifier"):
                verdict = with_signs(await verify(changes), result, changes)
        timings = {"open": opened - began, "agent": worked - opened, "verifier": time.monotonic() - worked}
        return Outcome(result, verdict, timings, await self._kept([changes]))

    async def _attempt_steps(self, task: Task, seat: Seat, image: str) -> Outcome:
        """Work on a task's steps, one after the other, within the time of one rollout."""
        began, worked_s = time.monotonic(), 0.0
        spec, guest = await self._invited(agent_spec(task, image))

        async def work(part: Task, sandbox: Sandbox) -> AgentResult:
            nonlocal worked_s
            started = time.monotonic()
            left = max(1.0, self.config.rollout_timeout_s - worked_s)
            result = await self._work(part, seat, traced(sandbox), left, guest)
            worked_s += time.monotonic() - started
            return result

        done, problem = await work_in_steps(self.backend, self.starts, task, image, work, spec)
        verdicts = [with_signs(step.verdict, step.worked, step.changes) for step in done]
        if not done:
            raise InfraError(Failure.TASK, "" if problem is None else problem.explanation)
        verdict = combined(task, verdicts if problem is None else [*verdicts, problem])
        timings = {"agent": worked_s, "verifier": time.monotonic() - began - worked_s}
        # A step that could not be begun counts, when it is judged again, as it does now.
        begun = [] if problem is None else [Changes(problem=problem.explanation)]
        kept = await self._kept([*(step.changes for step in done), *begun])
        return Outcome(joined([step.worked for step in done]), verdict, timings, kept)

    async def _kept(self, parts: Sequence[Changes]) -> tuple[Mapping[str, Any], ...]:
        """Return what is kept of the changes of a task's parts."""
        most = int(self.config.keep_work_mb * 2**20)
        return tuple([await asyncio.to_thread(packed, changes, most) for changes in parts]) if most else ()

    async def _invited(self, spec: SandboxSpec) -> tuple[SandboxSpec, Guest | None]:
        """Return what the agent's sandbox is made of, and the agent where it isn't ours."""
        if self.guests is None:
            return spec, None
        guest = await self.guests.invite(spec)
        return guest.spec, guest

    async def _complete(self, spec: SandboxSpec) -> SandboxSpec:
        return (await self._invited(spec))[0]

    async def _work(self, task: Task, seat: Seat, sandbox: Sandbox, seconds: float, guest: Guest | None) -> AgentResult:
        """Let an agent work in a sandbox. seconds: the most that it may take. guest: the agent where it isn't ours."""
        most = seconds if task.timeout_s is None else min(seconds, task.timeout_s)
        if guest is None:
            agent = self.agent(seat, self.make_tools(sandbox), working_dir=sandbox.workdir, max_seconds=most)
            return await agent.run(task.instruction)
        budgets, split = self._sampling(seat, {"max_seconds": most})
        server = self._serving(seat)
        async with WatchedSession(server, self.template, self.tool_format, budgets, split=split) as session:
            return await guest.work(session, sandbox, task.instruction)


def _check_opening(config: SWEEnvConfig) -> Sequence[Exception]:
    """Return what is wrong with the length of rows for an agent that isn't ours."""
    try:
        agent = find_agent(config.agent, AGENTS)
    except ValueError:  # said already
        return ()
    if not isinstance(agent, ForeignAgent) or agent.opening < config.max_token_length:
        return ()
    said = (
        f"--env.max_token_length {config.max_token_length}: agent {agent.name} begins with about {agent.opening} tokens"
    )
    return [ValueError(f"{said}, before its first reply: raise it, or take an agent that says less (docs/agents.md)")]


async def _check_daemons(config: SWEEnvConfig) -> None:
    """Check that a Docker daemon answers, of several at least one, and that those that do can do what is asked for.
    Raises SandboxError and ValueError with the remedy."""
    if config.hosts is None:
        await _check_daemon(Host(""), config)
        return
    checks = [_check_daemon(host, config) for host in read_hosts(config.hosts)]
    found = await asyncio.gather(*checks, return_exceptions=True)
    problems = [error for error in found if isinstance(error, BaseException)]
    for error in problems:
        if len(problems) == len(found) or not isinstance(error, SandboxError):
            raise error


async def _check_daemon(host: Host, config: SWEEnvConfig) -> None:
    """Check that a Docker daemon answers and knows the runtime, and that crun can be used where it is asked for.
    host: this machine's where its url is empty."""
    runtime = config.sandbox_runtime
    async with connect(host.url or None, host.certificates) as docker:
        if config.sandbox_starter == "crun":
            found = find_crun(docker, await docker.system.info(), runtime)
            if isinstance(found, Obstacle):
                raise ValueError(f"--env.sandbox_starter crun: {found.why}; leave that away for the Docker daemon")
        if runtime is None or "." in runtime or "/" in runtime:  # of containerd, which need not be registered
            return
        known = sorted((await docker.system.info()).get("Runtimes") or ())
    if runtime not in known:
        raise ValueError(
            f"--env.sandbox_runtime {runtime}: the Docker daemon has none of that name; choose one of "
            f"{', '.join(known)}, or install it and name it in the daemon's configuration"
        )


async def _unusable(tasks: Mapping[str, Task], config: SWEEnvConfig) -> Mapping[str, str]:
    """Return what is known against tasks on every Docker daemon that answers, by task. Raises SandboxError."""
    found: list[Mapping[str, str]] = []
    for host in [Host("")] if config.hosts is None else read_hosts(config.hosts):
        try:
            async with connect(host.url or None, host.certificates) as docker:
                known = await ask(docker, list(tasks.values()), config.base_image)
        except SandboxError as error:  # which is said, or waited for, where sandboxes are made
            logger.debug("what %s can build is not known: %s", host.url or "the Docker daemon", error)
            continue
        said = {name: unusable(task, known, config.base_image) for name, task in tasks.items()}
        found.append({name: why for name, why in said.items() if why is not None})
    return {name: why for name, why in found[0].items() if all(name in one for one in found)} if found else {}


def unchecked(tasks: str, manifest: Path | None, eval_tasks: str) -> list[str]:
    """Return the folders of tasks of which no manifest says that they are sound. The starter pack is checked here."""
    given = [*([] if manifest else [tasks]), *([eval_tasks] if eval_tasks else [])]
    folders = [one for one in dict.fromkeys(given) if one != "starter"]
    return [one for one in folders if not (Path(one).expanduser() / MANIFEST).is_file()]


def load_source(source: str, manifest: Path | None, bad: str) -> list[Task]:
    """Return the tasks of a folder, or of the starter pack, that are sound. bad: "skip" leaves out and lists the
    others, "refuse" raises BadTasks."""
    folder = STARTER if source == "starter" else Path(source).expanduser()
    try:
        tasks = load_tasks(folder)
    except BadTasks as error:
        if bad == "refuse" or not error.usable:
            raise
        logger.warning("%s\nThe %d others are used", error, len(error.usable))
        tasks = error.usable
    return checked(tasks, folder, manifest)
