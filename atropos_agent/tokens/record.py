"""The record of what an inference server was given and what it sampled, against which rows are checked.

It is written where requests leave and replies arrive, apart from the bookkeeping that makes rows
(`Conversation`), so that a mistake in one shows against the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from atropos_agent.types import IGNORED, NO_LOGPROB, Exchange, SequenceData


@dataclass(slots=True)
class Record:
    """Requests and replies of one run, in order."""

    exchanges: list[Exchange] = field(default_factory=list)
    _prompt: Sequence[int] = ()
    _reply: Sequence[int] = ()

    def add(self, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Write down a request's prompt, which must not change afterwards, and the reply to it."""
        middle, end = len(self._prompt), len(self._prompt) + len(self._reply)
        extends = (
            middle > 0
            and list(prompt[middle:end]) == list(self._reply)
            # The longest part last: comparing what is the same object costs next to nothing.
            and prompt[:middle] == self._prompt
        )
        given = prompt[end:] if extends else prompt
        self._prompt, self._reply = prompt, tuple(ids)
        self.exchanges.append(Exchange(extends, tuple(given), self._reply, tuple(logprobs)))


def problems(rows: Sequence[SequenceData], exchanges: Iterable[Exchange]) -> list[str | None]:
    """Return for each row in what it differs from the record; None where it is the record.

    A row must hold, in order, everything of one sequence of requests in which each extends the one
    before and its reply, with the mask and the logprobs of the replies; a sequence without a sampled
    token has no row.
    """
    recorded = [row for row in _replayed(exchanges) if any(mask != IGNORED for mask in row[1])]
    if len(rows) != len(recorded):
        return [f"there are {len(rows)} rows of {len(recorded)} sequences of requests"] * len(rows)
    return [_difference(row, *replay) for row, replay in zip(rows, recorded, strict=True)]


def _replayed(exchanges: Iterable[Exchange]) -> list[tuple[list[int], list[int], list[float]]]:
    """Return ids, mask and logprobs of each sequence of requests, up to its last sampled token."""
    replays: list[tuple[list[int], list[int], list[float]]] = []
    pending: list[int] = []
    for exchange in exchanges:
        if not exchange.extends:
            replays.append(([], [], []))
            pending = []
        pending += exchange.given
        if exchange.ids:
            ids, mask, logprobs = replays[-1]
            ids += [*pending, *exchange.ids]
            mask += [*[IGNORED] * len(pending), *exchange.ids]
            logprobs += [*[NO_LOGPROB] * len(pending), *exchange.logprobs]
            pending = []
    return replays


def _difference(row: SequenceData, ids: list[int], mask: list[int], logprobs: list[float]) -> str | None:
    for name, ours, recorded in (
        ("tokens", list(row.tokens), ids),
        ("masked_tokens", list(row.masked_tokens), mask),
        ("logprobs", list(row.logprobs), logprobs),
    ):
        if ours != recorded:
            return f"{name}: {first_difference(ours, recorded)}"
    return None


def first_difference(ours: Sequence[float], theirs: Sequence[float], *, around: int = 3) -> str:
    """Describe where two sequences first differ, with the neighbours of that place."""
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    shown = slice(max(0, place - around), place + around + 1)
    return f"place {place} of {len(ours)}: {list(ours[shown])} instead of {list(theirs[shown])}"
