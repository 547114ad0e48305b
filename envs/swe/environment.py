"""The software engineering environment: a task, a sandbox, an agent in it, hidden tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ClassVar

from atropos_agent.agent import AtroposAgent
from atropos_agent.tracing import span
from atropos_agent.types import AgentResult
from envs.agents.facts import ForeignAgent
from envs.agents.guests import Guest, Guests
from envs.agents.naming import OWN, find_agent, own_problems, room_problems
from envs.agents.watching import WatchedSession
from envs.base import AgentEnv
from envs.judging.prefetch import Prefetch
from envs.judging.specs import rollout_spec
from envs.judging.start_trees import StartTrees
from envs.judging.workplace import Workplace, open_workplace
from envs.running.telemetry import trace_sandbox
from envs.swe.config import SWEEnvConfig
from envs.swe.daemons import backend_options, drop_unusable, sandbox_problems
from envs.swe.servers import check_servers, servers_of
from envs.swe.skills import with_skills
from envs.swe.source import judge_problems, load_parts, warn_unchecked
from envs.types import Outcome, Seat, Task
from sandboxes.base import Backend, Sandbox, SandboxSpec
from sandboxes.registry import load_backend
from tools import ToolRegistry, check_names, default_tools
from tools.mcp import tools_of
from tools.mcp.servers import MCPServer


class SWEEnv(AgentEnv[SWEEnvConfig]):
    """Agents fix repositories in containers; their changes are judged in a fresh one."""

    name: ClassVar[str] = "swe"
    env_config_cls = SWEEnvConfig

    @classmethod
    def load_tasks(cls, config: SWEEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        train, evaluate = load_parts(config)
        check_servers(config, (*train, *evaluate))
        return train, evaluate

    async def ready_tasks(self) -> tuple[Sequence[Task], Sequence[Task]]:
        return await drop_unusable(self.tasks(), self.config)

    @classmethod
    async def preflight(cls, config: SWEEnvConfig) -> None:
        problems: list[Exception] = []
        try:
            await super().preflight(config)
        except ExceptionGroup as group:
            problems += group.exceptions
        problems += room_problems(config.agent, config.max_token_length)
        problems += own_problems(config.agent, config.changed_options(OWN))
        problems += check_names(config.tools)
        problems += await sandbox_problems(config)
        problems += await judge_problems(config)
        if problems:
            raise ExceptionGroup("the environment can't be used as it is", problems)
        warn_unchecked(config)

    @classmethod
    def find_agent(cls, name: str) -> type[AtroposAgent]:
        found = find_agent(name)
        return AtroposAgent if isinstance(found, ForeignAgent) else found

    def make_backend(self) -> Backend:
        """Return the maker of the sandboxes."""
        return load_backend(self.config.sandbox, **backend_options(self.config))

    def make_tools(self, sandbox: Sandbox) -> ToolRegistry:
        """Return the tools of one rollout."""
        return default_tools(sandbox, self.config.tools)

    async def setup(self, resources: AsyncExitStack) -> None:
        self.mcp_servers = servers_of(self.config)
        self.backend = await resources.enter_async_context(self.make_backend())
        found = {name: find_agent(name) for name in self.agent_classes}
        self.guests = {
            name: Guests(agent, self.backend) if isinstance(agent, ForeignAgent) else None
            for name, agent in found.items()
        }
        self.starts = StartTrees(self.backend)
        # Of several agents it isn't known which one a coming task has, so no sandbox is made ahead.
        first, warm = next(iter(self.guests.values())), self.config.warm_sandboxes if len(found) == 1 else 0

        async def complete(spec: SandboxSpec) -> SandboxSpec:
            return spec if first is None else (await first.prepare(spec)).spec

        self.prefetch = await resources.enter_async_context(Prefetch(self.backend, warm, complete))

    def expect(self, task: Task) -> None:
        self.prefetch.begin(task)

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        guests = self.guests[seat.agent or self.config.agent]
        with span("sandbox image"):
            image = await self.backend.ensure_image(task.image, task.context)
        spec = rollout_spec(task, image)
        guest = None if guests is None else await guests.prepare(spec)
        async with (
            open_workplace(self.backend, self.starts, task, image, spec if guest is None else guest.spec) as place,
            self._tools(task, place.sandbox, guest) as tools,
        ):
            async for step in place:
                result = await self._work(step, seat, place, tools, guest)
                await place.judge(await place.collect(), result)
        return await place.outcome(self.config.keep_work_mb)

    @asynccontextmanager
    async def _tools(self, task: Task, sandbox: Sandbox, guest: Guest | None) -> AsyncIterator[ToolRegistry]:
        """Open the tools of a rollout, until it is over. An agent of others starts its servers itself."""
        sandbox = trace_sandbox(sandbox)
        tools = self.make_tools(sandbox)
        servers = self._servers(task) if guest is None else []
        async with tools_of(sandbox, servers, tools.names) as more:
            yield ToolRegistry([*tools, *more])

    def _servers(self, task: Task) -> Sequence[MCPServer]:
        """Return the servers of a task's agent. A run's server stands for a task's of the same name."""
        return list({server.name: server for server in (*task.mcp_servers, *self.mcp_servers)}.values())

    async def _work(
        self, step: Task, seat: Seat, place: Workplace, tools: ToolRegistry, guest: Guest | None
    ) -> AgentResult:
        """Let the agent work on a step, within the rest of the rollout's time and of the step's own."""
        left = place.left_s(self.config.rollout_timeout_s)
        most = left if step.timeout_s is None else min(left, step.timeout_s)
        sandbox = trace_sandbox(place.sandbox)
        instruction = await with_skills(step.instruction, sandbox, step.skills_dir)
        if guest is not None:
            budgets, split = self._sampling(seat, {"max_seconds": most})
            server = self._serving(seat)
            async with WatchedSession(server, self.template, self.tool_format, budgets, split=split) as session:
                return await guest.work(session, sandbox, instruction, self._servers(step))
        agent = self.agent(seat, tools, working_dir=sandbox.workdir, max_seconds=most)
        return await agent.run(instruction)
