"""The record of an inference server's prompts and samples; rows are checked against it.

It is written where requests leave and replies arrive, apart from the bookkeeping for rows
(`Conversation`), so a mistake in one shows against the other.
"""

from __future__ import annotations

import reprlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from atropos_agent.types import IGNORED, NO_LOGPROB, Exchange, SequenceData
from sandboxes.plurals import plural


@dataclass(slots=True)
class Record:
    """Requests and replies of one run, in order: a forest, if a run has several conversations."""

    exchanges: list[Exchange] = field(default_factory=list)
    _tips: dict[int, list[int]] = field(default_factory=dict)
    """Copies of the prompts of the exchanges that none extends yet, by their numbers; the last one stands last."""
    _following: dict[int | None, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Numbers of the exchanges that extend one; those that extend none stand at None."""

    def add(self, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float]) -> int:
        """Write down a request's prompt and the reply to it. Returns its number."""
        number = len(self.exchanges)
        extended, end = self._find_extended(prompt)
        back = 1 if extended is None else number - extended
        self.exchanges.append(Exchange(extended is not None, tuple(prompt[end:]), tuple(ids), tuple(logprobs), back))
        known = [] if extended is None else self._tips.pop(extended, [])
        self._tips[number] = known if len(known) == len(prompt) else list(prompt)
        self._following[extended].append(number)
        return number

    def _find_extended(self, prompt: Sequence[int]) -> tuple[int | None, int]:
        """Return the exchange that a prompt extends, of several the longest, and the end of its reply there."""
        if len(self._tips) == 1:
            # Then no other can be longer. A tip beside others can: a reply may begin as one does that was cut off.
            ((number, known),) = self._tips.items()
            middle, end = len(known), len(known) + len(self.exchanges[number].ids)
            # Made as long as the prompt, and not the prompt cut: that would copy all of it every turn.
            known += self.exchanges[number].ids
            known += prompt[end:]
            if middle and known == prompt:
                return number, end
            del known[middle:]
        found, length = None, 0
        pending = [(number, 0) for number in self._following[None]]
        while pending:
            number, start = pending.pop()
            exchange = self.exchanges[number]
            middle = start + len(exchange.given)
            end = middle + len(exchange.ids)
            if _stands_at(prompt, start, exchange.given) and _stands_at(prompt, middle, exchange.ids):
                if end > length:
                    found, length = number, end
                pending += [(following, end) for following in self._following[number]]
        return found, length


def _stands_at(prompt: Sequence[int], start: int, ids: Sequence[int]) -> bool:
    """Tell whether ids stand at a place of a prompt. Most differ in the last id: to compare all copies the prompt."""
    end = start + len(ids)
    return tuple(prompt[max(start, end - 1) : end]) == ids[-1:] and tuple(prompt[start:end]) == ids


def problems(rows: Sequence[SequenceData], exchanges: Iterable[Exchange]) -> list[str | None]:
    """Return each row's difference from the record; None for none.

    Rows are compared by content, however they were split. Each must be the beginning of one sequence of requests, in
    which each extends the one before and its reply, and train whole replies of it with their logprobs. No reply is
    trained twice, and none with a reason to be left out. If none of the rows differs, all of them must train every
    other reply.
    """
    forest = _Forest.of(list(exchanges))
    found: list[str | None] = []
    trained: set[int] = set()
    for number, row in enumerate(rows):
        try:
            trained |= forest.trained(row, number, trained)
        except _RowMismatchError as difference:
            found.append(str(difference))
        else:
            found.append(None)
    lost = sum(1 for exchange in forest.exchanges if exchange.ids and not exchange.untrained) - len(trained)
    if lost and not any(found):
        counts = f"{plural(len(rows), 'row')} for {plural(len(forest.sequences), 'sequence')} of requests"
        return [f"{lost} of the recorded replies are trained in no row: {counts}"] * len(rows)
    return found


class _RowMismatchError(Exception):
    """A row differs from the record."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Requests that each extend the one before. ids: up to the last sampled one; replies: numbers of exchanges
    with the same content, by the places at which their replies start."""

    ids: list[int]
    replies: dict[int, list[int]]


@dataclass(frozen=True, slots=True)
class _Forest:
    """Recorded exchanges, and a sequence for each last reply."""

    exchanges: Sequence[Exchange]
    sequences: Sequence[_Sequence]

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> _Forest:
        """Find the exchanges that each exchange extends. Any of several with the same content may be the extended
        one."""
        groups: list[tuple[int | None, list[int]]] = []
        known: dict[tuple[int | None, tuple[int, ...], tuple[int, ...]], int] = {}
        group_of: list[int] = []
        for number, exchange in enumerate(exchanges):
            before = group_of[number - exchange.back] if exchange.extends else None
            group = known.setdefault((before, tuple(exchange.given), tuple(exchange.ids)), len(groups))
            if group == len(groups):
                groups.append((before, []))
            groups[group][1].append(number)
            group_of.append(group)
        inner = {before for before, _ in groups}
        sequences = []
        for last in range(len(groups)):
            if last not in inner and (sequence := _sequence(last, groups, exchanges)).replies:
                sequences.append(sequence)
        return cls(exchanges, sequences)

    def trained(self, row: SequenceData, number: int, already: Collection[int]) -> set[int]:
        """Return the exchanges with replies that a row trains. already: those of other rows. Raises
        _RowMismatchError."""
        tokens = list(row.tokens)
        # Normally the row's own; several may be alike up to the row's end.
        ordered = sorted(range(len(self.sequences)), key=lambda of: of != number)
        differences: list[_RowMismatchError] = []
        for of in ordered:
            if self.sequences[of].ids[: len(tokens)] == tokens:
                try:
                    return self._trained(row, self.sequences[of], already)
                except _RowMismatchError as difference:
                    differences.append(difference)
        if differences:
            raise differences[0]
        if number < len(self.sequences):
            raise _RowMismatchError(f"tokens: {first_difference(tokens, self.sequences[number].ids)}")
        raise _RowMismatchError(f"tokens: there are only {len(self.sequences)} sequences of requests")

    def _trained(self, row: SequenceData, sequence: _Sequence, already: Collection[int]) -> set[int]:
        """Return the replies of a sequence that a row trains. Raises _RowMismatchError if it trains anything else."""
        mask, logprobs = [IGNORED] * len(row.tokens), [NO_LOGPROB] * len(row.tokens)
        found: set[int] = set()
        for start, alike in sequence.replies.items():
            end = start + len(self.exchanges[alike[0]].ids)
            if all(token == IGNORED for token in row.masked_tokens[start:end]):
                continue
            of = self._choose_exchange(alike, list(row.logprobs[start:end]), start, already)
            mask[start:end], logprobs[start:end] = self.exchanges[of].ids, self.exchanges[of].logprobs
            found.add(of)
        for name, ours, recorded in (
            ("masked_tokens", list(row.masked_tokens), mask),
            ("logprobs", list(row.logprobs), logprobs),
        ):
            if ours != recorded:
                raise _RowMismatchError(f"{name}: {first_difference(ours, recorded)}")
        if not found:
            raise _RowMismatchError("masked_tokens: nothing is trained")
        return found

    def _choose_exchange(
        self, alike: Sequence[int], logprobs: list[float], start: int, already: Collection[int]
    ) -> int:
        """Return the exchange that a row trains at a place, of several with the same content: an allowed one with
        its logprobs."""
        same = [of for of in alike if list(self.exchanges[of].logprobs) == logprobs]
        if not same:
            return alike[0]  # from which the row differs
        kept = [of for of in same if not self.exchanges[of].untrained]
        if not kept:
            why = self.exchanges[same[0]].untrained
            raise _RowMismatchError(f"masked_tokens: the reply at place {start} was to be left out: {why}")
        free = [of for of in kept if of not in already]
        if not free:
            raise _RowMismatchError(f"the reply at place {start} is trained in another row, too")
        return free[0]


def _sequence(last: int, groups: Sequence[tuple[int | None, list[int]]], exchanges: Sequence[Exchange]) -> _Sequence:
    """Return the sequence that ends with a group of exchanges of the same content."""
    path: list[int] = []
    at: int | None = last
    while at is not None:
        path.append(at)
        at = groups[at][0]
    sequence = _Sequence([], {})
    pending: list[int] = []
    for group in reversed(path):
        alike = groups[group][1]
        pending += exchanges[alike[0]].given
        if exchanges[alike[0]].ids:
            sequence.replies[len(sequence.ids) + len(pending)] = alike
            sequence.ids.extend([*pending, *exchanges[alike[0]].ids])
            pending = []
    return sequence


_SHORT = reprlib.Repr()
"""Writes up to seven values, however deep or long those of an odd answer are."""
_SHORT.maxlist = 7


def first_difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Describe the first difference of two sequences, with the neighbours of its place."""
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    shown = slice(max(0, place - 3), place + 4)
    excerpts = [_SHORT.repr(list(values[shown])) for values in (ours, theirs)]
    return f"place {place} of {len(ours)}: {excerpts[0]} instead of {excerpts[1]}"
