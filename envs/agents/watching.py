"""A watched gateway session: its agent's requests, and whether it seems to be done."""

from __future__ import annotations

import time

from atropos_agent.gateway import Session
from atropos_agent.gateway.echo import same_messages
from atropos_agent.gateway.forest import SampledReply, Turn
from atropos_agent.gateway.requests import GatewayRequest, Refusal
from atropos_agent.types import StopReason


class WatchedSession(Session):
    """A session that knows whether its agent has anything left to do.

    requests: number understood so far. first_s: time of the first one (`time.monotonic`); None before.
    last: the last answered turn with tools; None before the first.
    by_text: whether it works without tools: then any reply may be work, and its program ends it.
    """

    requests = 0
    first_s: float | None = None
    last: Turn | None = None
    by_text = False
    _answered_at: float | None = None
    _ended_since: float | None = None
    """Time since there is no more to get: the end of a budget, or an infrastructure failure."""

    def ask(self, request: GatewayRequest) -> Turn:
        if self.first_s is None:
            self.first_s = time.monotonic()
        self.requests += 1
        turn = super().ask(request)
        if turn.work is not None:
            turn.work.add_done_callback(lambda work: self._record_answer(turn))
        return turn

    def note_refusal(self, refusal: Refusal, *, tools: bool) -> None:
        super().note_refusal(refusal, tools=tools)
        if not self.turns:
            self._answered_at = time.monotonic()

    def _blocking_refusal(self) -> Refusal | None:
        """Return the refusal in the way of a result; an answered title is no beginning."""
        return super()._blocking_refusal() or (None if self.has_begun else self.refused.get(True))

    @property
    def has_begun(self) -> bool:
        """Return whether the agent was answered where it shows its tools, or works without."""
        return self.last is not None and (self.by_text or bool(self.last.request.tools))

    @property
    def is_only_preparing(self) -> bool:
        """Return whether the agent has had nothing but titles and the like, and nothing stands in its way."""
        hindered = self.refused or self.ended_by is not None or self.failure is not None
        return bool(self.turns) and not (self.has_begun or hindered)

    def silent_s(self, began: float) -> float:
        """Return the seconds without a request: since the last reply, or the agent's beginning."""
        return 0.0 if self.working else time.monotonic() - (self._answered_at or began)

    def idle_s(self) -> float:
        """Return for how many seconds nothing has been left to do: since the last reply, while no conversation waits
        for its tools, or the first refusal at the end of a budget."""
        if self.working:
            return 0.0
        since = self._ended_since
        if since is None and not (
            self.by_text or any(self._awaits_results(turn, sampled) for turn, sampled in self.turns)
        ):
            since = self._answered_at
        return 0.0 if since is None else time.monotonic() - since

    def _record_answer(self, turn: Turn) -> None:
        if turn.sampled is None:  # refused at the end of a budget, or a failure of ours
            self._mark_ended()
            return
        if self.ended_by is None:
            self._ended_since = None
        if turn.request.tools or self.by_text or self.last is None:  # titles and summaries have none
            self.last = turn
        self._answered_at = time.monotonic()

    def _awaits_results(self, turn: Turn, sampled: SampledReply) -> bool:
        """Tell whether results of a turn's calls may still come: the agent has the reply, and did not leave it."""
        if not sampled.answer.calls or turn.children or not (turn.taken or turn.waiting):
            return False
        number = sampled.answer.number
        return not any(later.answer.number > number and _branches_off(other, turn) for other, later in self.turns)

    def _end_refusal(self, reason: StopReason, why: str) -> Refusal:
        self._mark_ended()
        return super()._end_refusal(reason, why)

    def _mark_ended(self) -> None:
        self._ended_since = self._ended_since or time.monotonic()


def _branches_off(other: Turn, turn: Turn) -> bool:
    """Tell whether the agent requested one turn after another instead of going on from it."""
    if other.parent is None:
        again = turn.parent is None and same_messages(other.given, turn.given)
        return (other.retells or again) and other.request.toolset == turn.request.toolset
    return other.parent is turn.parent
