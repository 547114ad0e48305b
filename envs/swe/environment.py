"""The software engineering environment: a task, a sandbox, an agent in it, hidden tests."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

from atropos_agent.types import AgentResult
from envs.base import AgentEnv
from envs.judging.changes import collect_changes
from envs.judging.cheating import with_signs
from envs.judging.prefetch import Prefetch
from envs.judging.specs import agent_spec
from envs.judging.start_trees import StartTrees
from envs.judging.steps import combined, joined, work_in_steps
from envs.judging.verifier import open_verifier
from envs.rewards import shaped
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.tasks.harbor import load_tasks
from envs.tasks.selection import checked, of_use, shard, solved_shares, split, tagged
from envs.types import BadTasks, Failure, InfraError, Outcome, Reward, Seat, Task
from sandboxes.base import Backend, Sandbox, SandboxError
from sandboxes.docker import PoolLimits
from sandboxes.docker.daemon import connect
from sandboxes.registry import load_backend, named_factory
from tools import ToolRegistry, check_names, default_tools

logger = logging.getLogger(__name__)


class SWEEnv(AgentEnv[SWEEnvConfig]):
    """Agents fix repositories in containers; what they changed is judged in a fresh one."""

    name: ClassVar[str] = "swe"
    env_config_cls = SWEEnvConfig

    @classmethod
    def load_tasks(cls, config: SWEEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        tasks = _load(config.tasks, config.manifest, config.bad_tasks)
        others = _load(config.eval_tasks, None, config.bad_tasks) if config.eval_tasks else tasks
        if config.eval_share and not config.eval_tasks:
            tasks, others = split(tasks, config.eval_share, config.seed)
        train = shard(tagged(tasks, config.tags, "tags", without=config.skip_tags), config.shard, config.seed)
        evaluate = tagged(others, config.eval_tags, "eval_tags", without=config.skip_tags)
        if config.difficulty_from:
            train = of_use(train, solved_shares(config.difficulty_from), config.difficulty_rollouts)
        return train, evaluate

    @classmethod
    async def preflight(cls, config: SWEEnvConfig) -> None:
        problems: list[Exception] = []
        try:
            await super().preflight(config)
        except ExceptionGroup as group:
            problems += group.exceptions
        problems += check_names(config.tools)
        try:
            named_factory(config.sandbox)
            if config.sandbox == "docker":
                await _check_daemon(config.sandbox_runtime)
        except (SandboxError, ValueError) as error:
            problems.append(error)
        if problems:
            raise ExceptionGroup("the environment can't be used as it is", problems)

    def make_backend(self) -> Backend:
        """Return what makes the sandboxes."""
        warm = self.config.warm_sandboxes
        return load_backend(
            self.config.sandbox,
            base_image=self.config.base_image,
            pool=PoolLimits(each=warm) if warm else None,
            runtime=self.config.sandbox_runtime,
        )

    def make_tools(self, sandbox: Sandbox) -> ToolRegistry:
        """Return the tools of one rollout."""
        return default_tools(sandbox, self.config.tools)

    async def setup(self, resources: AsyncExitStack) -> None:
        self.backend = await resources.enter_async_context(self.make_backend())
        self.prefetch = await resources.enter_async_context(Prefetch(self.backend, self.config.warm_sandboxes))
        self.starts = StartTrees(self.backend)

    def expect(self, task: Task) -> None:
        self.prefetch.begin(task)

    def reward(self, task: Task, outcome: Outcome) -> float | Reward:
        if self.reward_function is not None:
            return self.reward_function(task, outcome)
        return shaped(outcome.verdict, outcome.result, self.config.shaping)

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        image = await self.backend.ensure_image(task.image, task.context)
        if task.steps:
            return await self._attempt_steps(task, seat, image)
        start = await self.starts.get(task, image)
        began = time.monotonic()
        async with open_verifier(self.backend, task, image) as verify:
            async with self.backend.open(agent_spec(task, image)) as sandbox:
                opened = time.monotonic()
                result = await self._work(task, seat, sandbox, self.config.rollout_timeout_s)
                worked = time.monotonic()
                changes = await collect_changes(sandbox, start, task.hidden.protected)
            verdict = with_signs(await verify(changes), result, changes)
        timings = {"open": opened - began, "agent": worked - opened, "verifier": time.monotonic() - worked}
        return Outcome(result, verdict, timings)

    async def _attempt_steps(self, task: Task, seat: Seat, image: str) -> Outcome:
        """Work on a task's steps, one after the other, within the time of one rollout."""
        began, worked_s = time.monotonic(), 0.0

        async def work(part: Task, sandbox: Sandbox) -> AgentResult:
            nonlocal worked_s
            started = time.monotonic()
            left = max(1.0, self.config.rollout_timeout_s - worked_s)
            result = await self._work(part, seat, sandbox, left)
            worked_s += time.monotonic() - started
            return result

        done, problem = await work_in_steps(self.backend, self.starts, task, image, work)
        verdicts = [with_signs(step.verdict, step.worked, step.changes) for step in done]
        if not done:
            raise InfraError(Failure.TASK, "" if problem is None else problem.explanation)
        verdict = combined(task, verdicts if problem is None else [*verdicts, problem])
        timings = {"agent": worked_s, "verifier": time.monotonic() - began - worked_s}
        return Outcome(joined([step.worked for step in done]), verdict, timings)

    async def _work(self, task: Task, seat: Seat, sandbox: Sandbox, seconds: float) -> AgentResult:
        """Let an agent work in a sandbox. seconds: the most that it may take."""
        agent = self.agent(
            seat,
            self.make_tools(sandbox),
            working_dir=sandbox.workdir,
            max_seconds=seconds if task.timeout_s is None else min(seconds, task.timeout_s),
        )
        return await agent.run(task.instruction)


async def _check_daemon(runtime: str | None) -> None:
    """Check that a Docker daemon answers and knows the runtime. Raises SandboxError and ValueError with the remedy."""
    async with connect() as docker:
        if runtime is None or "." in runtime or "/" in runtime:  # of containerd, which need not be registered
            return
        known = sorted((await docker.system.info()).get("Runtimes") or ())
    if runtime not in known:
        raise ValueError(
            f"--env.sandbox_runtime {runtime}: the Docker daemon has none of that name; choose one of "
            f"{', '.join(known)}, or install it and name it in the daemon's configuration"
        )


def _load(source: str, manifest: Path | None, bad: str) -> list[Task]:
    folder = STARTER if source == "starter" else Path(source).expanduser()
    try:
        tasks = load_tasks(folder)
    except BadTasks as error:
        if bad == "refuse" or not error.usable:
            raise
        logger.warning("%s\nThe %d others are used", error, len(error.usable))
        tasks = error.usable
    return checked(tasks, folder, manifest)
