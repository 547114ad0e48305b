"""Limit the cost of a rollout's requests to this process, no matter which process in a sandbox sends them.

A request too large for a prompt of so many tokens is refused before it is encoded. A rollout with slow requests waits
for others: an event loop serves all rollouts.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

UNKNOWN = 1 << 20
"""Tokens of a prompt at most, if nothing sets a limit."""
_CHARACTERS_OF_TOKEN, _CHARACTERS = 32, 64 << 10
_TOKENS_OF_MESSAGE, _MESSAGES = 4, 1000
_BYTES_OF_TOKEN, _BYTES = 64, 16 << 20
"""Bytes of a body: these for each token of the prompt, and these in addition. A body may hold pictures read by tools,
again with each request."""
_REST, _BURST_S = 3.0, 1.0
"""A rollout's next request waits for a multiple of the time taken by the last ones (first), less some seconds
(second)."""


class TooLong(Exception):
    """A request too long for a prompt of as many tokens as there may be."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a request whose prompt may have so many `tokens`: some eight times the size of a text of as
    many."""

    tokens: int

    @property
    def body(self) -> int:
        """Return the most bytes of a body."""
        return _BYTES + _BYTES_OF_TOKEN * self.tokens

    def check_number(self, messages: Sequence[object]) -> None:
        """Raise TooLong for more messages than a prompt can hold."""
        most = _MESSAGES + self.tokens // _TOKENS_OF_MESSAGE
        if len(messages) > most:
            raise TooLong(f"{len(messages)} messages > {most} maximum")

    def check_size(self, values: Iterable[T]) -> list[T]:
        """Return messages or tools as a list. Raises TooLong where they have more text than a prompt can hold, and has
        no more of them made."""
        most = left = _CHARACTERS + _CHARACTERS_OF_TOKEN * self.tokens
        found = []
        for value in values:
            left -= len(str(value))
            if left < 0:
                raise TooLong(f"more than {most} characters")
            found.append(value)
        return found


class Share:
    """A rollout's share of the event loop."""

    def __init__(self) -> None:
        self._free_at = -math.inf

    def wait_s(self) -> float:
        """Return how many seconds the rollout must still wait."""
        return max(0.0, self._free_at - time.monotonic())

    @contextlib.contextmanager
    def take_time(self) -> Iterator[None]:
        """Take the time of this block, which holds no wait, from the share."""
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            self._free_at = max(self._free_at, began - _BURST_S) + (1 + _REST) * took
