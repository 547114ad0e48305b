"""A gateway session that is watched: what its agent has asked, and whether it seems to be done."""

from __future__ import annotations

import time

from atropos_agent.gateway import Session
from atropos_agent.gateway.asked import Asked, Refusal
from atropos_agent.gateway.forest import Turn


class WatchedSession(Session):
    """A session that knows whether its agent has anything left to do.

    requests: that were understood so far. first_s: when the first one came (`time.monotonic`); None before.
    last: the last turn that was answered of those with tools; None before the first.
    """

    requests = 0
    first_s: float | None = None
    last: Turn | None = None
    _rests_since: float | None = None

    def ask(self, asked: Asked) -> Turn:
        if self.first_s is None:
            self.first_s = time.monotonic()
        self.requests += 1
        try:
            turn = super().ask(asked)
        except Refusal:
            if self.ended_by is not None:
                self._rests()
            raise
        if turn.work is not None:
            turn.work.add_done_callback(lambda work: self._answered(turn))
        return turn

    def rests_s(self) -> float:
        """Return for how many seconds nothing has been left to do: since the last reply that asks for nothing while no
        other conversation waits for its tools, or the first refusal at the end of a budget."""
        if self.working or self._rests_since is None:
            return 0.0
        return time.monotonic() - self._rests_since

    def _answered(self, turn: Turn) -> None:
        if turn.sampled is None:  # refused at the end of a budget, or a failure of ours
            self._rests()
            return
        if turn.asked.tools or self.last is None:  # titles and summaries have none
            self.last = turn
        self._rests_since = None
        if not self._tools_run():
            self._rests()

    def _tools_run(self) -> bool:
        """Tell whether there are calls whose results have not come yet."""
        return any(sampled.answer.calls and not turn.children for turn, sampled in self.turns)

    def _rests(self) -> None:
        self._rests_since = self._rests_since or time.monotonic()
