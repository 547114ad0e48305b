"""The agent: it replies, calls tools and sees their results, until an answer, a submission or a budget ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from atroposlib.envs.server_handling.managed_server import ManagedServer, SequenceNode
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServer

from atropos_agent.compaction import policy_of
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.base import ToolFormat
from atropos_agent.formats.hermes import Hermes
from atropos_agent.ledger import BudgetSpent, ExecuteTool, Ledger
from atropos_agent.sampling import Sampler
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.turns import Turns
from atropos_agent.types import AgentConfig, AgentError, AgentResult, Branch, Message, SequenceData, StopReason
from tools.base import ToolRegistry

if TYPE_CHECKING:  # its import takes seconds: transformers, with PyTorch where that is
    from atroposlib.envs.server_handling.server_manager import ServerManager


class AtroposAgent:
    """Works on tasks with tools, keeping every token given to or sampled by the inference server.

    For an agent of your own, make a subclass with its own `work`.

    server: an Atropos ServerManager, or a single APIServer. With atroposlib's `OpenAIServer`, which has no token ids,
        results hold messages but no rows.
    tools: those the model may call.
    tokenizer: of the model on the inference server; `template` may be given in its place, so many agents share one.
        Neither is used without token ids.
    tool_format: how the model calls tools; Hermes when None. As a `FittedFormat` it leaves to the chat template
        everything the template can do; a bare one is text altogether.
    execute_tool: runs a call; `tools.execute` when None. Its exceptions are infrastructure failures.

    ledgers: makes this the agent of one rollout: the rollout's ledger is added to this list, and all runs go on with
        one conversation. None makes each run a rollout.
    """

    ledgers: list[Ledger] | None = None
    _first: Turns | None = None

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
        if not isinstance(_first_server(server), OpenAIServer):
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
        """Work on a task to the end. An agent made for one rollout goes on with it in a second run.

        initial_messages: stands before the task; it replaces the system prompt when it starts
            with a system message.

        Raises AgentError (EngineError, TokenMismatch, or one with a tool's exception as its cause), with
        everything sampled so far in `partial`.
        """
        async with self.turns(initial_messages or ()) as turns:
            turns.add(task)
            await self.work(turns)
            turns.ended = turns.ended or StopReason.ANSWERED
        return turns.result()

    async def work(self, turns: Turns) -> None:
        """Have the model reply and run its calls until it answers, submits, or a budget is spent.

        Override this in an agent of your own. turns: the task stands in it. You may use it freely, fork it, and open
        other conversations beside it: the result holds everything sampled in all of them, and ends as `turns` does."""
        compact = policy_of(self.config, turns)
        while turns.ended is None:
            await compact(turns)
            if turns.ended is not None:
                break
            reply = await turns.reply()
            await turns.execute(reply.calls)

    async def run_single_turn(self, messages: Sequence[Message], execute_tools: bool = True) -> AgentResult:
        """Sample one reply to `messages` and run its calls, for callers with a loop of their own.

        The result's `messages` go on from `messages`; its `stop_reason` is None when the agent
        would go on. Each call's row stands by itself. Raises as `run` does.
        """
        async with self.turns(messages, apart=True) as turns:
            reply = await turns.reply()
            if execute_tools:
                await turns.execute(reply.calls)
        return turns.result()

    @asynccontextmanager
    async def turns(self, messages: Sequence[Message] = (), *, apart: bool = False) -> AsyncIterator[Turns]:
        """Open a rollout, with its first conversation, which holds these messages: `run` is written on it.

        An agent made for one rollout goes on with its first conversation, unless it is to be one `apart`. Leaving
        the block ends everything still under way. Raises AgentError, with everything sampled so far in `partial`,
        for an exception in the block, and for an infrastructure failure caught there: no reward may be made of
        either."""
        async with _session(self.server, self.template) as managed:
            turns = self._begin_turns(managed.server, apart=apart)
            try:
                async with turns.ledger.closing():
                    try:
                        turns.add(messages)
                        yield turns
                    except BudgetSpent as spent:
                        turns.ended = turns.ended or spent.reason
            except AgentError as error:
                error.partial = turns.result(error=str(error))
                raise
            except Exception as error:  # an agent of others raises anything; its rows go with the failure
                cause = f"{type(error).__name__}: {error}"
                raise AgentError(cause, turns.result(error=cause)) from error
            finally:
                _publish(managed, turns.ledger.harvest().rows)

    def _begin_turns(self, server: APIServer, *, apart: bool) -> Turns:
        """Return the first conversation of a run."""
        if self._first is not None:
            return self._first.open(branch=Branch.MAIN) if apart else self._first
        sampler = Sampler(server, self.config, self.template, self.split)
        turns = Turns(Ledger(sampler, self.tool_format, self.tools.schemas, self._execute))
        if self.ledgers is not None:
            self._first = turns
            self.ledgers.append(turns.ledger)
        return turns


@asynccontextmanager
async def _session(server: ServerManager | APIServer, template: ChatTemplate | None) -> AsyncIterator[ManagedServer]:
    """Open the inference server for one run, and a place for its rows."""
    if template is None:
        yield ManagedServer(_first_server(server), tokenizer=object())  # which is never used
    elif isinstance(server, APIServer):
        yield ManagedServer(server, tokenizer=template.tokenizer)
    else:
        async with server.managed_server(tokenizer=template.tokenizer) as managed:
            yield managed


def _first_server(server: ServerManager | APIServer) -> APIServer:
    return server if isinstance(server, APIServer) else server.servers[0]


def _publish(managed: ManagedServer, rows: Sequence[SequenceData]) -> None:
    """Leave the rows in ManagedServer's `current_nodes`, for its users."""
    managed.current_nodes = [
        SequenceNode(
            full_text=row.full_text,
            tokens=list(row.tokens),
            masked_tokens=list(row.masked_tokens),
            logprobs=list(row.logprobs),
            metadata={"segment": row.segment, "turns": row.turns, "policy_version": row.policy_version}
            | ({"thinking_kept": True} if row.thinking_kept else {}),
        )
        for row in rows
    ]
