"""Agents without code: presets of tools and prompts for our own loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from envs.base import AgentEnv
from envs.functions.config import FunctionConfig
from envs.functions.judging import check_score, judge_reply
from envs.judging.specs import agent_spec
from envs.types import Outcome, Seat, Task
from sandboxes.base import Backend
from sandboxes.registry import load_backend, named_factory
from tools import ToolFunction, ToolRegistry, check_names, default_tools

REACT = """\
You solve tasks step by step. Before each call of a tool, think in a sentence or two about what you know and what you \
need to find out next. When you know the answer, give it without calling a tool."""
CODING = """\
You are a software engineer at work in a repository. Look at the code that matters before you change it, make the \
smallest change that solves the task, and run what shows that it does. Then submit."""
CODING_TOOLS = ("terminal", "view", "create", "replace", "insert", "search", "find", "submit")


@dataclass(frozen=True)
class Agent:
    """Our own loop with tools and a prompt, and its score.

    tools: functions, or names of standard tools (these work in a sandbox, opened for each task).
    system_prompt: comes before the description of the tools.
    score: judges; it is given `task`, `answer`, `result` and, if there is one, the `sandbox` as the agent has left
    it, by the names of its parameters. It returns a number or a Verdict.
    """

    tools: Sequence[ToolFunction | str]
    score: Callable[..., Any]
    system_prompt: str | None = None
    name: str = "agent"

    def __post_init__(self) -> None:
        problems = check_names([tool for tool in self.tools if isinstance(tool, str)])
        if problems:
            raise problems[0]
        ToolRegistry(_functions(self.tools))  # which refuses what has no schema
        check_score(self.score, sandbox=self.in_sandbox)

    @property
    def in_sandbox(self) -> bool:
        """Tell whether its tools need a sandbox."""
        return any(isinstance(tool, str) for tool in self.tools)

    @cached_property
    def environment(self) -> type[AgentPresetEnv]:
        """Return the environment around it."""
        return type("Agent", (AgentPresetEnv,), {"name": self.name, "preset": self})


def tool_agent(tools: Sequence[ToolFunction], *, score: Callable[..., Any], system_prompt: str | None = None) -> Agent:
    """Return an agent that calls functions."""
    return Agent(tools, score, system_prompt, "tools")


def react(tools: Sequence[ToolFunction | str], *, score: Callable[..., Any]) -> Agent:
    """Return an agent that thinks before each call."""
    return Agent(tools, score, REACT, "react")


def coder(*, score: Callable[..., Any], tools: Sequence[ToolFunction | str] = CODING_TOOLS) -> Agent:
    """Return an agent that works in a repository, in a sandbox. Tasks with hidden tests are `envs.swe`'s."""
    return Agent(tools, score, CODING, "coder")


class AgentPresetEnv(AgentEnv[FunctionConfig]):
    """The environment of a preset."""

    env_config_cls = FunctionConfig
    preset: ClassVar[Agent]

    @classmethod
    def load_tasks(cls, config: FunctionConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        # For good: a preset has no tasks of its own, and no command line that would ask for some.
        raise NotImplementedError("`run` is given the tasks")

    @classmethod
    async def preflight(cls, config: FunctionConfig) -> None:
        await super().preflight(config)
        if cls.preset.in_sandbox:
            named_factory(config.sandbox)

    async def setup(self, resources: AsyncExitStack) -> None:
        if self.preset.in_sandbox:
            self.backend: Backend = await resources.enter_async_context(load_backend(self.config.sandbox))

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        preset, options, limit_s = self.preset, dict[str, object](), self.config.rollout_timeout_s
        if task.timeout_s is not None:
            options["max_seconds"] = min(self.config.rollout_timeout_s, task.timeout_s)
        if preset.system_prompt is not None and self.config.system_prompt is None:
            options["system_prompt"] = preset.system_prompt
        if not preset.in_sandbox:
            result = await self.agent(seat, ToolRegistry(_functions(preset.tools)), **options).run(task.instruction)
            return Outcome(result, await judge_reply(preset.score, task, result, limit_s))
        image = await self.backend.ensure_image(task.image, task.context)
        async with self.backend.open(agent_spec(task, image)) as sandbox:
            named = default_tools(sandbox, [tool for tool in preset.tools if isinstance(tool, str)])
            tools = ToolRegistry([*named, *_functions(preset.tools)])
            result = await self.agent(seat, tools, working_dir=sandbox.workdir, **options).run(task.instruction)
            return Outcome(result, await judge_reply(preset.score, task, result, limit_s, sandbox))


def _functions(tools: Sequence[ToolFunction | str]) -> list[ToolFunction]:
    return [tool for tool in tools if not isinstance(tool, str)]
