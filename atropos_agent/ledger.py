"""Everything one rollout samples, in all its conversations, and the rollout's result."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from jinja2 import TemplateError
from opentelemetry.trace import Span

from atropos_agent import tracing
from atropos_agent.fitted import FittedFormat
from atropos_agent.harvest import Harvest, HarvestedReply, Read, compaction_of, harvest, take_in
from atropos_agent.offload import offload
from atropos_agent.sampling import Sampler
from atropos_agent.tokens.calls import Tools
from atropos_agent.tokens.chat import ChatLog
from atropos_agent.tokens.conversation import Completion, Conversation, Place
from atropos_agent.types import AgentResult, Counts, Message, StopReason
from sandboxes.shielding import on_failure
from tools.base import ToolCall, ToolResult

ExecuteTool = Callable[[ToolCall], Awaitable[ToolResult]]

LATE_S = 5.0
"""How long a cancelled task may take to end, in seconds. A tool that takes longer stood still."""


class BudgetSpent(Exception):
    """Another reply was requested after the end of a budget. The rollout ends there, and is graded normally.

    reason: names the budget."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(f"no budget is left for another reply: {reason}")
        self.reason = reason


@dataclass(eq=False, slots=True)
class Line:
    """A conversation with its replies. branch: see `Branch`. inherited: replies from before it was forked from
    another. added: messages added since its last reply, beside results of calls. end: the conversation's place after
    its last reply, and written: all messages since then, if some were written."""

    conversation: Conversation | ChatLog
    branch: str
    replies: list[HarvestedReply] = field(default_factory=list)
    inherited: int = 0
    added: Sequence[Message] = ()
    end: Place | None = None
    written: Sequence[Message] = ()

    def go_on(self, messages: Sequence[Message]) -> None:
        """Write all messages after the last reply, those before that got no reply among them. Raises jinja2's
        TemplateError; then nothing has changed."""
        before = self.conversation if self.written else None
        if self.end is None:
            self.end = self.conversation.place()
        else:
            self.conversation = self.conversation.fork(self.end)
        try:
            self.conversation.add_messages(messages)
        except TemplateError:
            self.conversation = self.conversation.fork(self.end) if before is None else before
            raise
        self.written = tuple(messages)

    def is_continued_in(self, other: Line) -> bool:
        """Tell whether another conversation holds all replies of this one, and more."""
        mine = len(self.replies)
        return mine < len(other.replies) and other.replies[:mine] == self.replies


class Ledger:
    """Keeps everything sampled in the conversations of one rollout, also in those its author forgets, drops or breaks
    off.

    fitted: how the model calls tools. schemas: of the tools shown to it. execute: runs a call.

    sampler: knows budgets and record. counts: of all conversations, beside the sampler's. failure: the first
    infrastructure failure; it spoils the rollout, even if it is caught; None without.
    """

    def __init__(self, sampler: Sampler, fitted: FittedFormat, schemas: Tools, execute: ExecuteTool) -> None:
        self.sampler = sampler
        self.fitted = fitted
        self.schemas = schemas
        self.execute = execute
        self.counts = Counts()
        self.failure: Exception | None = None
        self._lines: list[Line] = []
        self._taken: list[HarvestedReply] = []
        self._compacted = ("", 0, 0)
        self._sampling = 0
        self._spans: list[Span] = []
        """Spans of turns that may not have ended."""
        self._begun = self._number = 0
        self._taking: set[asyncio.Future[tuple[HarvestedReply, Read]]] = set()
        self._work: set[asyncio.Task[Any]] = set()
        self._harvest: Harvest | None = None

    # What conversations use

    def begin(self, messages: Sequence[Message], branch: str, kept: Sequence[Message] = ()) -> Line:
        """Begin a conversation. messages: as people write them; one system prompt is put first if there is none.
        kept: turns of another conversation of the rollout to put after them, as they stand there. Raises jinja2's
        TemplateError for messages refused by the chat template."""
        config, opening = self.sampler.config, list(messages)
        if opening[0]["role"] != "system":
            system = self.fitted.system_prompt(
                self.schemas, preamble=config.system_prompt, working_dir=config.working_dir
            )
            opening = [{"role": "system", "content": system}, *opening]
        begun = self.fitted.begin(
            *(self.sampler.template, [*self.fitted.opening(opening), *kept], self.schemas),
            keeps_thinking=config.history == "sampled",
        )
        return self._add_line(Line(begun, branch))

    def forget(self, line: Line) -> None:
        """Forget a conversation without replies."""
        self._lines.remove(line)

    def fork(self, line: Line, branch: str) -> Line:
        """Begin a conversation from the present end of another."""
        return self._add_line(
            replace(
                line,
                conversation=line.conversation.fork(line.conversation.place()),
                branch=branch,
                replies=list(line.replies),
                inherited=len(line.replies),
            )
        )

    def spent_budget(self) -> StopReason | None:
        """Return the budget of the rollout that leaves no room for a reply; None if there is room."""
        if self._number + self._sampling >= self.sampler.config.max_steps:
            return StopReason.MAX_STEPS
        return StopReason.TIME if self.sampler.remaining() <= 0 else None

    def begin_turn(self) -> Span:
        """Begin the span of a turn. It ends with the rollout at the latest."""
        span = tracing.begin_turn(self._begun)
        self._begun += 1
        self._spans = [*filter(Span.is_recording, self._spans), span]
        return span

    async def sample(self, line: Line, max_tokens: int | None) -> Completion:
        """Sample a reply to a conversation's prompt. Raises the errors of `Sampler.sample`."""
        self._sampling += 1
        try:
            return await self.sampler.sample(line.conversation, max_tokens)
        finally:
            self._sampling -= 1

    async def take(
        self, line: Line, completion: Completion, *, first_id: int, engine_s: float
    ) -> tuple[HarvestedReply, Read]:
        """Take a reply into its conversation. first_id: of its first call."""
        exchange, number = len(self.sampler.record.exchanges) - 1, self._number
        self._number += 1
        read = partial(take_in, line.conversation, self.fitted, completion, number=number, first_id=first_id)
        work = partial(read, engine_s=engine_s)
        taking = asyncio.ensure_future(self._take(line, completion, exchange, work))
        self._taking.add(taking)
        taking.add_done_callback(self._taking.discard)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            await asyncio.wait({taking})  # it was sampled all the same, and nothing may be written before it is there
            raise

    async def _take(
        self, line: Line, completion: Completion, exchange: int, work: Callable[[], Read]
    ) -> tuple[HarvestedReply, Read]:
        read = await offload(work, len(completion.ids))
        self.sampler.accept(completion)
        step = replace(read.step, said=line.added if read.step.index else ())
        taken = HarvestedReply(step, exchange, line.branch)
        line.added, line.end, line.written = (), None, ()
        line.replies.append(taken)
        self._taken.append(taken)
        self._harvest = None
        return taken, read

    def leave_out(self, line: Line, reason: str) -> None:
        """Train none of the replies sampled in a conversation itself. They are counted by the reason."""
        for one in line.replies[line.inherited :]:
            one.untrained = reason
        self._harvest = None

    def note_compaction(self, version: str, *, saved: int) -> None:
        """Count that a conversation was made shorter. version: of the texts for it. saved: tokens, about."""
        _, count, before = self._compacted
        self._compacted = version, count + 1, before + saved

    @contextmanager
    def working(self) -> Iterator[None]:
        """Remember an infrastructure failure in this block, and let the block's task end with the rollout."""
        if self.failure is not None:
            raise self.failure
        task = asyncio.current_task()
        mine = {task} - self._work if task is not None else set()
        self._work |= mine
        try:
            with on_failure(self._note_failure):
                yield
        finally:
            self._work -= mine
            self._harvest = None

    def _note_failure(self, error: BaseException) -> None:
        if isinstance(error, Exception) and not isinstance(error, BudgetSpent):
            self.failure = self.failure or error

    # What the agent uses

    @property
    def replies(self) -> int:
        """Return how many replies were taken in."""
        return len(self._taken)

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """End the tasks that nobody has waited for, when the block ends. Raises an infrastructure failure, even one
        caught in the block."""
        try:
            yield
        except Exception:  # an earlier failure of ours is the cause of whatever came of it
            if self.failure is not None:
                raise self.failure from self.failure.__cause__
            raise
        finally:
            await self._end_tasks()
        if self.failure is not None:
            raise self.failure

    async def _end_tasks(self) -> None:
        left = self._work - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LATE_S)
        await asyncio.gather(*self._taking, return_exceptions=True)
        for span in self._spans:
            tracing.end(span)

    def harvest(self) -> Harvest:
        """Return the rows of all conversations, and the replies in no row. A conversation continued in another one
        has its rows there."""
        if self._harvest is None:
            lines = sorted(self._lines, key=lambda line: any(line.is_continued_in(other) for other in self._lines))
            paths = [(line.conversation, line.replies) for line in lines]
            self._harvest = harvest(paths, self.sampler.record.exchanges)
        return self._harvest

    def result(
        self, line: Line | None, messages: Sequence[Message], final: str, reason: StopReason | None, error: str | None
    ) -> AgentResult:
        """Return the rollout's result. line, messages, final, reason: of the conversation it ends with."""
        found = self.harvest()
        kinds = Counter(one.branch for one in self._taken)
        several = len(self._lines) > 1 or found.untrained
        details: dict[str, Any] = {"branches": dict(kinds), "untrained_tokens": dict(found.untrained)}
        version, count, saved = self._compacted
        if count:
            details |= compaction_of(found.steps, count, saved, version)
        return AgentResult(
            success=reason in (StopReason.ANSWERED, StopReason.SUBMITTED),
            final_response=final,
            steps=found.steps,
            stop_reason=reason,
            segments=found.rows,
            messages=tuple(messages),
            error=error,
            metadata={"conversations": details} if several else {},
            record=found.record,
            counts=self.counts + self.sampler.counts,
            carries_tokens=self.sampler.template is not None,
            drift=self._drift(line),
            conditions=self.sampler.conditions(self.schemas),
        )

    def _drift(self, line: Line | None) -> str | None:
        if line is None or not line.replies:
            return None
        found, last = self.harvest(), line.replies[-1].step.index
        place = next(step.segment for step in found.steps if step.index == last)
        row = next((row for row in found.rows if row.segment == place), None)
        return line.conversation.drift(row.full_text if row is not None else None)

    def _add_line(self, line: Line) -> Line:
        self._lines.append(line)
        self._harvest = None
        return line
