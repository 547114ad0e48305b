"""A protocol of agents: how a request is read, and how an answer, a stream and an error are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from atropos_agent.engines.http import dump_json
from atropos_agent.gateway.refusals import CHECKED
from atropos_agent.gateway.requests import Answer, GatewayRequest, Refusal

NOTED = 100
"""The most names of settings to count when they are not followed."""
_NOTHING: Sequence[Any] = (None, False, "", [], {}, {"type": "text"})
"""Values of parts of a request that ask for nothing."""
_CACHE = "cache_control"
"""A field about a provider's cache, in the request or in any part of it: no reply differs by it."""


class Protocol(ABC):
    """One protocol. It keeps nothing: one object serves every session.

    ping: a stream's content before there is an answer. prefix: of the ids made of an answer's number.
    """

    ping: bytes = b": ping\n\n"

    @abstractmethod
    def read(self, body: Mapping[str, Any]) -> GatewayRequest:
        """Return the request. Raises Refusal, which names the fields that can't be honoured."""

    @abstractmethod
    def body(self, answer: Answer, request: GatewayRequest) -> Mapping[str, Any]:
        """Return the body of an answer."""

    @abstractmethod
    def events(self, answer: Answer, request: GatewayRequest) -> Iterator[bytes]:
        """Yield an answer as server-sent events."""

    def counted(self, tokens: int) -> Mapping[str, Any]:
        """Return the body for a request that has its tokens counted."""
        return {"input_tokens": tokens}

    @abstractmethod
    def error(self, refusal: Refusal) -> Mapping[str, Any]:
        """Return the body of an error."""

    @abstractmethod
    def error_event(self, refusal: Refusal, request: GatewayRequest) -> bytes:
        """Return an error as the last event of a stream."""


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """Return a server-sent event."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + dump_json(data) + b"\n\n"


def noted(
    body: Mapping[str, Any],
    known: Collection[str],
    *parts: tuple[str, Iterable[Mapping[str, Any]], Collection[str]],
) -> Sequence[str]:
    """Return the names of a request's settings that are not followed, at most `NOTED`: they are kept with its turn.

    parts: objects within the request, such as its tools: their name, they themselves, and their fields that are read.
    """
    apart = {*known, *CHECKED, _CACHE}
    names = {name for name, value in body.items() if value is not None and name not in apart}
    for where, given, read in parts:
        apart = {*read, _CACHE}
        unread = {name for one in given for name in one.keys() - apart if one[name] not in _NOTHING}
        names |= {f"{where}.{name}" for name in unread}
    return tuple(sorted(name[:60] for name in names)[:NOTED])
