"""The agent: think, call tools, observe, until an answer, a submission or a budget ends it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from atroposlib.envs.server_handling.managed_server import ManagedServer, SequenceNode
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.envs.server_handling.server_manager import ServerManager

from atropos_agent import tracing
from atropos_agent.aside import aside
from atropos_agent.engines.errors import ContextOverflow
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.base import ToolFormat
from atropos_agent.formats.hermes import Hermes
from atropos_agent.sampling import Sampler
from atropos_agent.tokens.calls import CallsKind
from atropos_agent.tokens.chat import ChatLog
from atropos_agent.tokens.conversation import Conversation
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import (
    AgentConfig,
    AgentError,
    AgentResult,
    AgentStep,
    Counts,
    Message,
    Reply,
    SequenceData,
    StopReason,
)
from sandboxes.base import SandboxTimeout
from tools.base import ToolCall, ToolRegistry, ToolResult

logger = logging.getLogger(__name__)

LATE_S = 5.0
"""How long a tool that is cut short may take to end, in seconds. One that takes longer stood still."""

_TWICE = (
    "{} was run a second time in one rollout, whose rows and counts would be those of the last run alone: "
    "run it once, or put what it needs into the task or initial_messages"
)

ExecuteTool = Callable[[ToolCall], Awaitable[ToolResult]]


class AtroposAgent:
    """The loop: works on tasks with tools, keeping every token that the inference server was given or sampled.

    server: an Atropos ServerManager, or a single APIServer. With atroposlib's `OpenAIServer`,
        which has no token ids, results hold messages but no rows.
    tools: what the model may call.
    tokenizer: of the model that the inference server serves; `template` may be given in its place, so that
        many agents share one. Neither is used without token ids.
    tool_format: how the model calls tools; Hermes when None. As a `FittedFormat` it leaves to the chat template what
        that can do; a bare one is text altogether.
    execute_tool: runs a call; `tools.execute` when None. What it raises is a failure of ours.

    of_one_rollout: whether the agent was made for one rollout, whose rows are those of one run.
    """

    of_one_rollout = False
    _ran = False

    def __init__(
        self,
        server: ServerManager | APIServer,
        tools: ToolRegistry | None = None,
        config: AgentConfig | None = None,
        tokenizer: Any = None,
        execute_tool: ExecuteTool | None = None,
        *,
        template: ChatTemplate | None = None,
        tool_format: ToolFormat | FittedFormat | None = None,
        split: str = "train",
    ) -> None:
        self.server = server
        self.tools = ToolRegistry() if tools is None else tools
        self.config = config or AgentConfig()
        self.template: ChatTemplate | None = None
        if not isinstance(_first(server), OpenAIServer):
            if template is None and tokenizer is None:
                raise ValueError("AtroposAgent needs the tokenizer of the model that its server serves")
            self.template = template or ChatTemplate(tokenizer)
            fitted = isinstance(tool_format, FittedFormat)
            if not fitted and not self.template.knows_role(self.config.tool_role):
                raise ValueError(
                    f"the chat template takes no messages of role {self.config.tool_role!r}; "
                    'set AgentConfig.tool_role to "user"'
                )
        if not isinstance(tool_format, FittedFormat):
            tool_format = FittedFormat.text(tool_format or Hermes(), self.template, self.config.tool_role)
        self.tool_format = tool_format.with_tools(self.tools.schemas)
        self._execute = execute_tool or self.tools.execute
        self.split = split

    async def run(self, task: str, initial_messages: Sequence[Message] | None = None) -> AgentResult:
        """Work on a task to the end.

        initial_messages: stands before the task; it replaces the system prompt when it starts
            with a system message.

        Raises AgentError (EngineError, TokenMismatch, or what a tool raised as its cause), with
        everything sampled so far in `partial`; NotImplementedError for a second run in one rollout.
        """
        if self.of_one_rollout and self._ran:
            # For good: the rollout would keep the last run's rows alone.
            raise NotImplementedError(_TWICE.format(type(self).__name__))
        return await self._run([*(initial_messages or []), {"role": "user", "content": task}], self.config.max_steps)

    async def run_single_turn(self, messages: Sequence[Message]) -> AgentResult:
        """Sample one reply to `messages` and run its calls, for callers with a loop of their own.

        The result's `messages` go on from `messages`; its `stop_reason` is None when the agent
        would go on. Each call's row stands by itself. Raises as `run` does.
        """
        return await self._run(messages, 1, single=True)

    async def _run(self, messages: Sequence[Message], max_steps: int, *, single: bool = False) -> AgentResult:
        self._ran = True
        async with _session(self.server, self.template) as managed:
            run = _Run(self, managed, self._conversation(messages))
            try:
                reason: StopReason | None = await run.loop(max_steps)
            except AgentError as error:
                error.partial = run.result(None, error=str(error))
                raise
            except Exception as error:
                cause = f"{type(error).__name__}: {error}"
                raise AgentError(cause, run.result(None, error=cause)) from error
            finally:
                run.publish()
            if single and reason is StopReason.MAX_STEPS:
                reason = None
            return run.result(reason)

    def _conversation(self, messages: Sequence[Message]) -> Conversation | ChatLog:
        if not messages:
            raise ValueError("a conversation needs at least one message")
        fitted, schemas = self.tool_format, self.tools.schemas
        opening = list(messages)
        if opening[0]["role"] != "system":
            system = fitted.system_prompt(
                schemas, preamble=self.config.system_prompt, working_dir=self.config.working_dir
            )
            opening = [{"role": "system", "content": system}, *opening]
        keeps = self.config.history == "sampled"
        return fitted.begin(self.template, fitted.opening(opening), schemas, keeps_thinking=keeps)


class _Run:
    """One run of an agent: its conversation, its steps and its counts."""

    def __init__(self, agent: AtroposAgent, managed: ManagedServer, conversation: Conversation | ChatLog) -> None:
        self.agent = agent
        self.config = agent.config
        self.managed = managed
        self.conversation = conversation
        self.sampler = Sampler(managed.server, agent.config, agent.template, agent.split)
        self.steps: list[AgentStep] = []
        self.counts = Counts()
        self.final = ""

    async def loop(self, max_steps: int) -> StopReason:
        for index in range(max_steps):
            with tracing.turn(index):
                reason = await self.step(index)
            if reason is not None:
                return reason
        return StopReason.MAX_STEPS

    async def step(self, index: int) -> StopReason | None:
        """Sample one reply and run its calls. Returns why the run ends, or None."""
        if self.sampler.remaining() <= 0:
            return StopReason.TIME
        prompt = self.conversation.prompt
        budget = self.sampler.budget(len(prompt))
        if budget <= 0:
            return StopReason.MAX_TOKENS
        started = time.monotonic()
        segment, start = len(self.conversation.segments) - 1, len(prompt)
        try:
            completion = await self.sampler.sample(self.conversation, budget)
        except ContextOverflow as error:
            logger.info("the run ends because the inference server's context window is full: %s", error)
            return StopReason.MAX_TOKENS
        text = await aside(partial(self.conversation.add_reply, completion), len(completion.ids))
        self.sampler.accept(completion)
        logger.debug("reply (%s): %s", completion.finish_reason, text)
        step = AgentStep(
            index,
            text,
            finish_reason=completion.finish_reason,
            segment=segment,
            start=start,
            prompt_tokens=start,
            completion_tokens=len(completion.ids),
            engine_s=time.monotonic() - started,
            policy_version=completion.version,
        )
        return await self.act(step)

    async def act(self, step: AgentStep) -> StopReason | None:
        """Run a reply's calls and tell the model what came of them."""
        reply, called = await aside(partial(self.read, step), step.completion_tokens)
        if called is not None:
            self.conversation.add_calls(*called)
        step = replace(step, thinking=reply.thinking, content=reply.content, calls=reply.calls)
        self.final = reply.content
        if not reply.calls and not reply.problems:
            self.steps.append(step)
            return StopReason.ANSWERED
        started = time.monotonic()
        results, reason = await self.execute_all(reply.calls)
        correction = self.agent.tool_format.format.correction(reply.problems) if reply.problems else None
        tools_s = time.monotonic() - started
        self.steps.append(replace(step, results=tuple(results), correction=correction, tools_s=tools_s))
        self.counts += Counts(
            tool_errors=sum(result.is_error for result in results),
            malformed_calls=sum(result.malformed for result in results),
        )
        if reason is None:
            shown = self.agent.tool_format.results(results, reply.problems, called=called is not None)
            self.conversation.add_messages(shown)
        return reason

    def read(self, step: AgentStep) -> tuple[Reply, tuple[Message, CallsKind] | None]:
        """Take a reply apart; return it as a message, too. One cut off before it called anything is a problem."""
        reply = self.agent.tool_format.read(
            step.response, first_id=self.counts.tool_calls, thinking_open=self.conversation.thinking_open
        )
        if step.finish_reason == "length" and (reply.problems or not reply.calls):
            cut = f"the reply was cut off after {step.completion_tokens} tokens; be shorter"
            reply = replace(reply, problems=(*reply.problems, cut))
        self.counts += Counts(tool_calls=len(reply.calls), malformed_calls=len(reply.problems))
        return reply, self.agent.tool_format.message(reply)

    async def execute_all(self, calls: Sequence[ToolCall]) -> tuple[list[ToolResult], StopReason | None]:
        """Run calls in order. Returns their results, and why the run ends with them, or None."""
        results: list[ToolResult] = []
        for call in calls:
            try:
                result = await self.execute(call)
            except _OutOfTime:
                return results, StopReason.TIME
            results.append(result)
            if result.done:
                self.final = result.content
                return results, StopReason.SUBMITTED
        return results, None

    async def execute(self, call: ToolCall) -> ToolResult:
        remaining = self.sampler.remaining()
        if remaining <= 0:
            raise _OutOfTime
        try:
            async with asyncio.timeout(None if remaining == math.inf else remaining):
                with tracing.tool_call(call) as called:
                    result = await self.agent._execute(call)
                    tracing.tell_result(called, result)
                if self.config.tool_delay_s:
                    await asyncio.sleep(self.config.tool_delay_s)
        except TimeoutError as error:
            if self.sampler.remaining() > 0:
                raise
            if self.sampler.remaining() < -LATE_S:
                what = f"{call.name} did not end when it was cut short: what runs it stands still"
                raise SandboxTimeout(what) from error
            raise _OutOfTime from error
        logger.debug("%s(%s) -> %s", call.name, call.arguments, result.content)
        return result

    @cached_property
    def rows(self) -> tuple[SequenceData, ...]:
        """Return the conversation's rows, when it is over."""
        return tuple(self.conversation.rows())

    @cached_property
    def drift(self) -> str | None:
        """Return how the last prompt differs from the template's own, when the conversation is over."""
        return self.conversation.drift(self.rows)

    def result(self, reason: StopReason | None, error: str | None = None) -> AgentResult:
        return AgentResult(
            success=reason in (StopReason.ANSWERED, StopReason.SUBMITTED),
            final_response=self.final,
            steps=tuple(self.steps),
            stop_reason=reason,
            segments=self.rows,
            messages=tuple(self.conversation.plain_messages()),
            error=error,
            record=tuple(self.sampler.record.exchanges),
            counts=self.counts + self.sampler.counts,
            carries_tokens=self.agent.template is not None,
            drift=self.drift,
            conditions=self.sampler.conditions(self.agent.tools.schemas),
        )

    def publish(self) -> None:
        """Leave the rows where users of ManagedServer look for them."""
        self.managed.current_nodes = [
            SequenceNode(
                full_text=row.full_text,
                tokens=list(row.tokens),
                masked_tokens=list(row.masked_tokens),
                logprobs=list(row.logprobs),
                metadata={"segment": row.segment, "turns": row.turns, "policy_version": row.policy_version}
                | ({"thinking_kept": True} if row.thinking_kept else {}),
            )
            for row in self.rows
        ]


class _OutOfTime(Exception):
    """The run's wall time is over."""


@asynccontextmanager
async def _session(server: ServerManager | APIServer, template: ChatTemplate | None) -> AsyncIterator[ManagedServer]:
    """Open the inference server for one run, and a place for its rows."""
    if template is None:
        yield ManagedServer(_first(server), tokenizer=object())  # which is never asked for anything
    elif isinstance(server, APIServer):
        yield ManagedServer(server, tokenizer=template.tokenizer)
    else:
        async with server.managed_server(tokenizer=template.tokenizer) as managed:
            yield managed


def _first(server: ServerManager | APIServer) -> APIServer:
    return server if isinstance(server, APIServer) else server.servers[0]
