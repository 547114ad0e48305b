"""A conversation at work: messages are added, the model replies, its calls are run.

    turns.add("What is 6 * 7?")
    while turns.ended is None:
        reply = await turns.reply()
        await turns.execute(reply.calls)

This is the whole of our agent; you write your own on the same object (docs/extending.md). Budgets, the record of
everything sent and sampled, the journal, tracing and counts are inside. A rollout may have several conversations,
forked or opened beside the first: its result holds everything sampled in all of them (`atropos_agent.ledger`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from opentelemetry.trace import Span

from atropos_agent import tracing
from atropos_agent.calls import Calls
from atropos_agent.engines.errors import ContextOverflow
from atropos_agent.fitted import fitting
from atropos_agent.ledger import BudgetSpent, Ledger, Line
from atropos_agent.tokens.calls import map_texts
from atropos_agent.tokens.conversation import Completion
from atropos_agent.tokens.encoding import unquote
from atropos_agent.types import AgentResult, Branch, Counts, Message, Reply, SequenceData, StopReason
from tools.base import ToolCall, ToolResult

logger = logging.getLogger(__name__)

Edit = Callable[[Message], Message]

SPENT = frozenset({StopReason.MAX_STEPS, StopReason.MAX_TOKENS, StopReason.TIME})
"""Reasons after which a conversation can't go on."""


@dataclass(frozen=True, slots=True)
class TurnReply:
    """The model's reply.

    text: all of it, without the end-of-turn token. thinking, content, calls, problems: its parts (`types.Reply`).
    finish_reason: as the inference server gave it; "" if nothing was sampled.
    ended: why the conversation goes no further by itself: this is an answer, or a budget is spent and there is none.
    """

    text: str = ""
    thinking: str | None = None
    content: str = ""
    calls: Sequence[ToolCall] = ()
    problems: Sequence[str] = ()
    finish_reason: str = ""
    ended: StopReason | None = None


class Turns:
    """A conversation of a rollout. Made by `AtroposAgent.turns`, and by `fork` and `open` of another one.

    ended: why it goes no further by itself; None while it does. A message added after an answer or a submission goes
    on; after the end of a budget nothing does. final: the last answer, or the submitted text.
    ledger: of the rollout.
    """

    def __init__(self, ledger: Ledger, branch: str = Branch.MAIN) -> None:
        self.ended: StopReason | None = None
        self.final = ""
        self.ledger = ledger
        self._branch = branch
        self._line: Line | None = None
        self.task: Sequence[Message] = ()
        """The messages before its first reply; a restart leaves it."""
        self._kept: list[Message] = []
        """Turns from before a restart, put after the first messages."""
        self._given: list[Message] = []
        """Added messages not yet in the conversation."""
        self._calls = 0
        """Calls so far; their ids are numbered by it."""
        self._last: Calls | None = None
        """The calls of the last reply, until something is written after it."""
        self._replying = False

    def add(self, messages: str | Message | Sequence[Message]) -> None:
        """Add messages before the next reply. A text is the user's.

        The first ones may be any history; a system message at their beginning stands in place of the configured one.
        Raises ValueError for a message that can't come after a reply."""
        if isinstance(messages, str):
            messages = {"role": "user", "content": messages}
        new = [messages] if isinstance(messages, Mapping) else list(messages)
        if self._line is not None:
            new = self._following(new)
        self._given += new
        if new and self.ended not in SPENT:
            self.ended = None

    async def reply(self, max_tokens: int | None = None) -> TurnReply:
        """Sample the model's reply to the added messages, and to the results of its calls.

        max_tokens: of this reply, at most. Raises ValueError if there is nothing to reply to, BudgetSpent after the
        end of a budget, AgentError for an infrastructure failure."""
        if self.ended in SPENT:
            raise BudgetSpent(self.ended)
        if self._replying:
            raise ValueError("a reply is being sampled in this conversation; fork it for another one beside")
        self._replying = True
        try:
            return await self._reply(max_tokens)
        finally:
            self._replying = False

    async def execute(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run calls of the last reply, in order, for the model to see their results. Returns these.

        The model gets notes on malformed calls as well, and on calls not run. If a tool ends the conversation, or the
        rollout's time is over, the calls after it are not run; after the end of a budget none is. Raises
        ValueError for a call that isn't the reply's, and a tool's exception if it is an infrastructure failure."""
        if self.ended in SPENT:
            return []
        if self._last is None or not self._last.has_work:
            if calls:
                raise ValueError("the model has made no calls that could be run")
            return []
        results, self.ended = await self._last.run(self.ledger, calls)
        if self.ended is StopReason.SUBMITTED:
            self.final = results[-1].content
        return results

    def fork(self, branch: str = Branch.FORK) -> Turns:
        """Return a conversation that goes on from here by itself. Tokens sampled before are trained once.

        Replies sampled in a fork are trained, even if you go on without it; `leave_out` says otherwise."""
        forked = copy(self)
        forked._branch, forked._given, forked._replying = branch, list(self._given), False
        if self._last is not None:
            forked._last = self._last.fork()
        if self._line is not None:
            forked._line = self.ledger.fork(self._line, branch)
        return forked

    def open(self, messages: str | Message | Sequence[Message] = (), branch: str = Branch.SUB_AGENT) -> Turns:
        """Return another conversation of the rollout. It begins with these messages."""
        opened = Turns(self.ledger, branch)
        opened.add(messages)
        return opened

    def restart(
        self, messages: str | Message | Sequence[Message], *, keep: int | None = 0, edit: Edit | None = None
    ) -> None:
        """Go on with these messages: the model no longer sees the messages before, but their rows stay.

        keep: so many of the last turns come after them, as context; None for all. edit: changes the messages
        before the last two turns."""
        history = [] if self._line is None else [*self._line.conversation.messages, *self._result_messages()]
        starts = [place for place, message in enumerate(history) if message["role"] == "assistant"]
        first = len(history) if keep == 0 or not starts else starts[0 if keep is None else max(0, len(starts) - keep)]
        recent = starts[-2] if len(starts) > 1 else len(history)
        changed = [edit(one) if edit is not None and place < recent else one for place, one in enumerate(history)]
        self._line, self._last, self._given, self.ended, self._kept = None, None, [], None, changed[first:]
        self.add(messages)

    def leave_out(self, reason: str) -> None:
        """Train nothing sampled in this conversation itself. Its tokens are counted by the reason."""
        if self._line is not None:
            self.ledger.leave_out(self._line, reason)

    @property
    def messages(self) -> list[Message]:
        """Return the conversation as people read it, with the messages before the next reply."""
        if self._line is None:
            return [*map(dict, self._given), *(map_texts(message, unquote) for message in self._kept)]
        shown = self._result_messages() if self._last is not None and self._last.shown else []
        waiting = [map_texts(message, unquote) for message in shown]
        return [*self._line.conversation.plain_messages(), *waiting, *map(dict, self._given)]

    def room(self) -> int | None:
        """Return about how many tokens of room are left in the conversation; None if unknown."""
        sampler, written = self.ledger.sampler, 0 if self._line is None else len(self._line.conversation.prompt)
        waiting = [*self._result_messages(), *self._given, *([] if self._line is not None else self._kept)]
        return sampler.room(written + sum(sampler.tokens(message["content"] or "") for message in waiting))

    @property
    def replies(self) -> int:
        """Return how many replies the rollout has had, in all its conversations."""
        return self.ledger.replies

    def rows(self) -> list[SequenceData]:
        """Return the rows of this conversation alone. Those of the rollout, which train each token once, are in
        `result().segments`."""
        return [] if self._line is None else self._line.conversation.rows()

    def result(self, error: str | None = None) -> AgentResult:
        """Return the rollout's result, as it is now, with this conversation as its last one."""
        reason = None if error is not None else self.ended
        return self.ledger.result(self._line, self.messages, self.final, reason, error)

    async def _reply(self, max_tokens: int | None) -> TurnReply:
        ledger, reason = self.ledger, self.ledger.spent_budget()
        if reason is not None:
            return await self._spent(reason)
        line = self._write()
        tokens = len(line.conversation.prompt)
        budget = ledger.sampler.budget(tokens, max_tokens)
        if budget is not None and budget <= 0:
            return await self._spent(StopReason.MAX_TOKENS)
        span, started = ledger.begin_turn(), time.monotonic()
        with ledger.working(), tracing.use_span(span):
            try:
                completion = await ledger.sample(line, budget)
            except ContextOverflow as error:
                logger.info("no room for a reply: the inference server's context window is full: %s", error)
                return await self._spent(StopReason.MAX_TOKENS)
            return await self._take(line, completion, span, time.monotonic() - started)

    async def _take(self, line: Line, completion: Completion, span: Span, engine_s: float) -> TurnReply:
        taken, read = await self.ledger.take(line, completion, first_id=self._calls, engine_s=engine_s)
        logger.debug("reply (%s): %s", completion.finish_reason, read.text)
        reply = _whole(read.reply, completion)
        self._calls += len(reply.calls)
        self.ledger.counts += Counts(tool_calls=len(reply.calls), malformed_calls=len(reply.problems))
        self._last, self.final = Calls(taken, reply, read.called, span), reply.content
        if not self._last.has_work:
            self.ended = StopReason.ANSWERED
            tracing.end(span)
        return TurnReply(
            read.text,
            reply.thinking,
            reply.content,
            reply.calls,
            reply.problems,
            completion.finish_reason,
            self.ended,
        )

    async def _spent(self, reason: StopReason) -> TurnReply:
        self.ended = reason
        await asyncio.sleep(0)  # whoever asks again and again, in forks for example, holds up nobody else
        return TurnReply(ended=reason)

    def _following(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages to come after a reply, without the conversation's own system prompt. Raises ValueError."""
        assert self._line is not None  # noqa: S101 - nothing follows before that
        first = map_texts(self._line.conversation.messages[0], unquote)
        own = bool(messages) and messages[0]["role"] == "system" and messages[0]["content"] == first["content"]
        new = list(messages[own:])
        for role in (message["role"] for message in new):
            if role != "user":
                what = "another system prompt" if role == "system" else f"a message of role {role!r}"
                raise ValueError(f"{what} can't come after a reply; open another conversation that begins with it")
        return new

    def _write(self) -> Line:
        """Write the messages before the next reply into the conversation. Raises ValueError if there is nothing to
        reply to, and jinja2's TemplateError for messages that the chat template takes in no form."""
        if self._line is not None and self._given and not self._line.replies:  # its first messages got no reply
            self._given = [*self._line.added, *self._given]
            self.task = () if self.task == tuple(self._line.added) else self.task
            self.ledger.forget(self._line)
            self._line = None
        if self._line is None:
            if not self._given:
                raise ValueError("a conversation needs at least one message")
            self._line = fitting(lambda messages: self.ledger.begin(messages, self._branch, self._kept), self._given)
        elif new := [*self._result_messages(), *self.ledger.fitted.opening(self._given)]:
            fitting(self._line.go_on, [*self._line.written, *new])
        elif self._line.conversation.messages[-1]["role"] == "assistant":
            raise ValueError("the last message is the model's own; add what it is to reply to")
        self._line.added = (*self._line.added, *self._given)
        self.task = self.task or tuple(self._given)
        self._given, self._last = [], None
        return self._line

    def _result_messages(self) -> list[Message]:
        """Return the messages to the model about its last calls."""
        return [] if self._last is None else self._last.messages(self.ledger.fitted)


def _whole(reply: Reply, completion: Completion) -> Reply:
    """Return a reply, with a problem of its own if it was cut off before it called anything."""
    if completion.finish_reason != "length" or (reply.calls and not reply.problems):
        return reply
    tokens = completion.used[1] if completion.used else len(completion.ids)
    cut = f"the reply was cut off after {tokens} tokens; be shorter"
    return replace(reply, problems=(*reply.problems, cut))
