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

    Rows are compared by content, wherever they were split. Each must be the beginning of one sequence of requests, in
    which each extends the one before and its reply, and train whole replies of it with their logprobs. No reply is
    trained twice. Where none of the rows differs, all of them must train every reply.
    """
    sequences = [sequence for sequence in _sequences(exchanges) if sequence.replies]
    found: list[str | None] = []
    trained: set[_Place] = set()
    for number, row in enumerate(rows):
        try:
            of = _sequence_of(row, number, sequences)
            places = [(of, start) for start in _trained(row, sequences[of])]
            if twice := trained.intersection(places):
                raise _Differs(f"the reply at place {min(twice)[1]} is trained in another row, too")
        except _Differs as difference:
            found.append(str(difference))
        else:
            trained.update(places)
            found.append(None)
    lost = sum(len(sequence.replies) for sequence in sequences) - len(trained)
    if lost and not any(found):
        said = f"there are {len(rows)} rows of {len(sequences)} sequences of requests"
        return [f"{lost} of the recorded replies are trained in no row: {said}"] * len(rows)
    return found


_Place = tuple[int, int]
"""A reply's: the number of its sequence, and where it starts there."""


class _Differs(Exception):
    """A row is not what was recorded."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Requests of which each extends the one before. ids: up to the last sampled one; replies: by where they start."""

    ids: list[int]
    replies: dict[int, Exchange]


def _sequences(exchanges: Iterable[Exchange]) -> list[_Sequence]:
    found: list[_Sequence] = []
    pending: list[int] = []
    for exchange in exchanges:
        if not exchange.extends:
            found.append(_Sequence([], {}))
            pending = []
        pending += exchange.given
        if exchange.ids:
            found[-1].replies[len(found[-1].ids) + len(pending)] = exchange
            found[-1].ids.extend([*pending, *exchange.ids])
            pending = []
    return found


def _sequence_of(row: SequenceData, number: int, sequences: Sequence[_Sequence]) -> int:
    """Return the number of the sequence with which a row begins: normally the row's own. Raises _Differs."""
    tokens = list(row.tokens)
    for of in sorted(range(len(sequences)), key=lambda n: n != number):
        if sequences[of].ids[: len(tokens)] == tokens:
            return of
    if number < len(sequences):
        raise _Differs(f"tokens: {first_difference(tokens, sequences[number].ids)}")
    raise _Differs(f"tokens: there are only {len(sequences)} sequences of requests")


def _trained(row: SequenceData, sequence: _Sequence) -> list[int]:
    """Return where the replies start that a row trains. Raises _Differs where it trains anything else."""
    mask, logprobs = [IGNORED] * len(row.tokens), [NO_LOGPROB] * len(row.tokens)
    starts = [
        start
        for start, reply in sequence.replies.items()
        if any(token != IGNORED for token in row.masked_tokens[start : start + len(reply.ids)])
    ]
    for start in starts:
        reply = sequence.replies[start]
        mask[start : start + len(reply.ids)] = reply.ids
        logprobs[start : start + len(reply.ids)] = reply.logprobs
    for name, ours, recorded in (
        ("masked_tokens", list(row.masked_tokens), mask),
        ("logprobs", list(row.logprobs), logprobs),
    ):
        if ours != recorded:
            raise _Differs(f"{name}: {first_difference(ours, recorded)}")
    if not starts:
        raise _Differs("masked_tokens: nothing is trained")
    return starts


def first_difference(ours: Sequence[float], theirs: Sequence[float], *, around: int = 3) -> str:
    """Describe where two sequences first differ, with the neighbours of that place."""
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    shown = slice(max(0, place - around), place + around + 1)
    return f"place {place} of {len(ours)}: {list(ours[shown])} instead of {list(theirs[shown])}"
