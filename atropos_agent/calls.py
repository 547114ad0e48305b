"""Run the calls of a conversation's last reply, and tell the model their results."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from opentelemetry.trace import Span

from atropos_agent import tracing
from atropos_agent.fitted import FittedFormat
from atropos_agent.harvest import HarvestedReply
from atropos_agent.ledger import LATE_S, Ledger
from atropos_agent.types import Counts, Message, Reply, StopReason
from sandboxes.base import SandboxTimeout
from tools.base import ToolCall, ToolResult

logger = logging.getLogger(__name__)

NOT_RUN = "This call was not run."


@dataclass(slots=True)
class Calls:
    """The calls of a reply, as long as nothing was written after it.

    called: whether its calls are the chat template's. span: the turn's. results: by the place of the call in the reply.
    shown: whether calls were run, and the model is to go on from their results.
    """

    taken: HarvestedReply
    reply: Reply
    called: bool
    span: Span
    results: dict[int, ToolResult] = field(default_factory=dict)
    shown: bool = False

    @property
    def has_work(self) -> bool:
        """Tell whether there is something to run, or to correct."""
        return bool(self.reply.calls or self.reply.problems)

    def fork(self) -> Calls:
        """Return a copy for another conversation, which adds its own results to it."""
        return replace(self, results=dict(self.results))

    async def run(self, ledger: Ledger, calls: Sequence[ToolCall]) -> tuple[list[ToolResult], StopReason | None]:
        """Run some of the calls, in order. Returns their results, and why the conversation ends with them, or None.

        Raises ValueError for a call that isn't the reply's, or was run before, and a tool's exception if it is an
        infrastructure failure."""
        places, results, ended = self._find_places(calls), list[ToolResult](), None
        started = time.monotonic()
        with ledger.working(), tracing.use_span(self.span):
            for place, call in zip(places, calls, strict=True):
                if (result := await _run(ledger, call)) is None:
                    ended = StopReason.TIME
                    break
                self.results[place] = result
                results.append(result)
                if result.done:
                    ended = StopReason.SUBMITTED
                    break
        tracing.end(self.span)
        self.shown = ended is None
        self._note(ledger, results, time.monotonic() - started)
        return results, ended

    def messages(self, fitted: FittedFormat) -> list[Message]:
        """Return the messages to the model: the results of all calls, in their order, and the problems of malformed
        ones."""
        if not self.has_work:
            return []
        unrun = [ToolResult(NOT_RUN, is_error=True, call=call) for call in self.reply.calls]
        results = [self.results.get(place, result) for place, result in enumerate(unrun)]
        return fitted.results(results, self.reply.problems, called=self.called)

    def _find_places(self, calls: Sequence[ToolCall]) -> list[int]:
        """Return the places of calls in the reply. Several may have one id."""
        free: dict[str, list[int]] = {}
        for place, call in enumerate(self.reply.calls):
            if place not in self.results:
                free.setdefault(call.id, []).append(place)
        places: list[int] = []
        for call in calls:
            if not (found := free.get(call.id)):
                raise ValueError(f"the last reply holds no call {call.id!r} of {call.name!r} that was not run yet")
            places.append(min(found, key=lambda place: self.reply.calls[place] is not call))
            found.remove(places[-1])
        return places

    def _note(self, ledger: Ledger, results: Sequence[ToolResult], tools_s: float) -> None:
        """Add the calls' results to the reply's step, and count them."""
        problems, step = self.reply.problems, self.taken.step
        self.taken.step = replace(
            step,
            results=tuple(self.results[place] for place in sorted(self.results)),
            correction=ledger.fitted.format.correction(problems) if problems else None,
            tools_s=step.tools_s + tools_s,
        )
        ledger.counts += Counts(
            tool_errors=sum(result.is_error for result in results),
            malformed_calls=sum(result.malformed for result in results),
        )


async def _run(ledger: Ledger, call: ToolCall) -> ToolResult | None:
    """Run a call. Returns None if the rollout's time is over."""
    sampler = ledger.sampler
    if (remaining := sampler.remaining()) <= 0:
        return None
    try:
        async with asyncio.timeout(None if remaining == math.inf else remaining):
            with tracing.tool_call(call) as called:
                result = await ledger.execute(call)
                tracing.record_result(called, result)
            if sampler.config.tool_delay_s:
                await asyncio.sleep(sampler.config.tool_delay_s)
    except TimeoutError as error:
        if sampler.remaining() > 0:
            raise
        if sampler.remaining() < -LATE_S:
            what = f"{call.name} did not end when it was cut short: what runs it stands still"
            raise SandboxTimeout(what) from error
        return None
    logger.debug("%s(%s) -> %s", call.name, call.arguments, result.content)
    return result
