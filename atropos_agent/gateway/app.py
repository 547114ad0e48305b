"""A session as an ASGI application: bodies in, answers out, in the protocol of the request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import typing
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import orjson

from atropos_agent.engines.http import dump_json, has_more_values
from atropos_agent.gateway.bounds import Bounds, Share, TooLong
from atropos_agent.gateway.chat import Chat
from atropos_agent.gateway.forest import Turn
from atropos_agent.gateway.gemini import PATH, Gemini, of_path
from atropos_agent.gateway.messages import Messages
from atropos_agent.gateway.protocol import Protocol
from atropos_agent.gateway.requests import Fault, GatewayRequest, Refusal
from atropos_agent.gateway.responses import Responses
from atropos_agent.types import AgentError

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY = 32 * 1024 * 1024
"""Bytes of a request's body: more than any context window holds."""
MOST_VALUES = 4_000_000
"""Values in a request's JSON, counted by commas and brackets, those of its texts too: a token has one, at most."""
MAX_DEPTH = 500
"""Levels of nested JSON in a body. From any caller, Python can compare, write and read twice as many."""
BODY_S = 60.0
"""Seconds within which a body must have come."""
SEND_S = 60.0
"""Seconds within which a client must take each message sent to it."""
PING_S = 3.0
"""Seconds between signs of life in a stream. Before the first one, an answer can still be an error with a status."""

UNTAKEN = "atropos.untaken"
PROTOCOLS: Mapping[str, Protocol] = {
    "chat/completions": Chat(),
    "responses": Responses(),
    "messages(/count_tokens)?": Messages(),
    PATH: Gemini(),
}
"""By the pattern of their path."""
_COUNTING = ("/count_tokens", ":countTokens")
_VERSION = re.compile(r"v1(beta|alpha)?/")
_STREAM = b"text/event-stream", (b"cache-control", b"no-cache")
_MODEL = {
    **{"id": "gateway", "object": "model", "created": 0, "owned_by": "atropos-agent"},
    **{"type": "model", "display_name": "gateway", "created_at": "2026-01-01T00:00:00Z"},
    **{"name": "models/gateway", "version": "1", "displayName": "gateway"},
    "supportedGenerationMethods": ["generateContent", "countTokens"],
}
"""The answer to a request for models, in the shapes of all three providers. A request may name any model."""


class RequestHandler(typing.Protocol):
    """The part of `Session` that answers requests in a rollout."""

    @property
    def bounds(self) -> Bounds:
        """Return the limits of a request."""
        ...

    @property
    def share(self) -> Share:
        """Return the rollout's share of the event loop."""
        ...

    def ask(self, request: GatewayRequest) -> Turn:
        """Return the turn that answers a request. Raises Refusal and AgentError."""
        ...

    def count_tokens(self, request: GatewayRequest) -> int:
        """Return how many tokens a request has. Raises Refusal and AgentError."""
        ...

    def note_refusal(self, refusal: Refusal, *, tools: bool) -> None:
        """Note the refusal of a request. tools: whether the request has some."""
        ...

    def too_long(self, error: TooLong, *, counting: bool) -> Refusal:
        """Return the refusal of a request for its length."""
        ...

    def fail(self, error: Exception) -> AgentError:
        """Note an infrastructure failure, and return it."""
        ...


class _ClientGone(Exception):
    """The client went away."""


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.path = _VERSION.sub("", scope["path"].strip("/") + "/", count=1).strip("/")
        found = protocol_of(self.path)
        self.protocol = found or PROTOCOLS["chat/completions"]
        self.known = found is not None
        self.counts = self.path.endswith(_COUNTING)
        self._receive = receive
        self._send = send
        self._left: asyncio.Task[None] | None = None
        self._unread = scope["method"] == "POST" or any(_tells_body(*header) for header in scope["headers"])
        self.begun = False

    async def body(self, most: int) -> bytes:
        """Read the request's body. most: its bytes. Raises TooLong, Refusal, _Gone."""
        encoding = dict(self.scope["headers"]).get(b"content-encoding", b"identity")
        if encoding != b"identity":
            raise Refusal(f"content-encoding: {encoding.decode('latin-1')[:40]!r} is not read; send the body plain")
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(BODY_S):
                while more:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise _ClientGone
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > MAX_BODY:
                        raise Refusal(f"the body has more than {MAX_BODY} bytes", Fault.TOO_LARGE)
                    if len(body) > most:
                        raise TooLong(f"a request of more than {most} bytes")
        except TimeoutError:
            raise Refusal(f"the body did not come within {BODY_S:.0f} s", Fault.TOO_SLOW) from None
        self._unread = False
        if has_more_values(body, MOST_VALUES):
            raise Refusal(f"the body has more than {MOST_VALUES} values", Fault.TOO_LARGE)
        return bytes(body)

    async def turn(self, share: Share) -> None:
        """Wait for the rollout's turn. Raises _Gone if the client goes away first, with everything it has sent."""
        while (left := share.wait_s()) > 0:
            await asyncio.wait({self._watch_client()}, timeout=left)
            if self._watch_client().done():
                raise _ClientGone

    async def wait(self, turn: Turn, timeout: float | None) -> bool:
        """Wait until a turn is answered; return whether it is. Raises _Gone when the client goes away first."""
        if turn.work is None or turn.work.done():
            return True
        await asyncio.wait({turn.work, self._watch_client()}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not turn.work.done() and self._watch_client().done():
            raise _ClientGone
        return turn.work.done()

    async def begin(self, status: int, kind: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Begin the response."""
        self.begun = True
        await self._send_message(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *headers]}
        )

    async def write(self, content: bytes, *, last: bool = False) -> None:
        """Send a part of the response, or the last one. Raises _Gone when the client is not there any more.

        The last one is sent with the response's end: some clients read no further, and would seem not to have it."""
        if self._left is not None or not self._unread:  # asking reads what is unread, which may have no end
            leaving = self._watch_client()
            await asyncio.sleep(0)
            if leaving.done():
                raise _ClientGone
        await self._send_message({"type": "http.response.body", "body": content, "more_body": not last})

    async def send_body(self, status: int, kind: bytes, content: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Send a response with one body."""
        # A body that is not read may have no end.
        closed = [(b"connection", b"close")] * self._unread
        await self.begin(status, kind, (b"content-length", str(len(content)).encode()), *headers, *closed)
        await self.write(b"" if self.scope["method"] == "HEAD" else content, last=True)

    async def send_json(self, status: int, body: Mapping[str, Any], *headers: tuple[bytes, bytes]) -> None:
        """Send a JSON value as the response."""
        await self.send_body(status, b"application/json", dump_json(body), *headers)

    async def refuse(self, refusal: Refusal, request: GatewayRequest | None) -> None:
        """Send an error."""
        if self.begun and request is not None:
            await self.write(self.protocol.error_event(refusal, request), last=True)
            return
        await self.send_json(refusal.fault.status, self.protocol.error(refusal), (b"x-should-retry", b"false"))

    def close(self) -> None:
        if self._left is not None:
            self._left.cancel()

    def _watch_client(self) -> asyncio.Task[None]:
        """Return a task that ends when the client has gone away."""
        if self._left is None:
            self._left = asyncio.create_task(self._wait_until_gone())
        return self._left

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _send_message(self, message: MutableMapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(SEND_S):
                await self._send(message)
        except OSError as error:  # TimeoutError is one
            raise _ClientGone from error


def protocol_of(path: str) -> Protocol | None:
    """Return the protocol of a path without its version; None for an unknown path."""
    return next((protocol for pattern, protocol in PROTOCOLS.items() if re.fullmatch(pattern, path)), None)


async def respond(session: RequestHandler, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request of a session's agent."""
    exchange, request, body = _Exchange(scope, receive, send), None, None
    try:
        if scope["method"] in ("GET", "HEAD"):
            await _answer_without_body(exchange)
            return
        if scope["method"] != "POST" or not exchange.known:
            raise _nothing_there(scope["method"], exchange.path)
        content = await exchange.body(session.bounds.body)
        await exchange.turn(session.share)
        with session.share.take_time():
            body = of_path(exchange.path, scope.get("query_string", b""), _parse_body(content))
            request = exchange.protocol.read(body)
            found = session.count_tokens(request) if exchange.counts else session.ask(request)
        if isinstance(found, int):
            await exchange.send_json(200, exchange.protocol.counted(found))
        else:
            await _answer(found, request, exchange)
    except _ClientGone:
        logger.debug("a client went away")
    except (Refusal, AgentError) as error:
        if isinstance(error, Refusal) and scope["method"] == "POST" and not exchange.counts:
            session.note_refusal(error, tools=bool((body or {}).get("tools") if request is None else request.tools))
        await _refuse(exchange, error, request)
    except TooLong as error:
        await _refuse(exchange, session.too_long(error, counting=exchange.counts), request)
    except RecursionError:
        await _refuse(exchange, _too_deep_refusal(), request)
    except Exception as error:  # the agent gets an answer, and the rollout fails by it
        logger.error("the gateway failed at a request", exc_info=error)
        await _refuse(exchange, session.fail(error), request)
    finally:
        exchange.close()


async def deny(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with an unknown key."""
    await _refuse(_Exchange(scope, receive, send), Refusal("the API key is not known here", Fault.UNKNOWN_KEY), None)


async def _refuse(exchange: _Exchange, error: Refusal | AgentError, request: GatewayRequest | None) -> None:
    refusal = error if isinstance(error, Refusal) else Refusal(f"the rollout has failed: {error}", Fault.OURS)
    try:
        await exchange.refuse(refusal, request)
    except _ClientGone:
        logger.debug("a client went away before it was told: %s", refusal.fault)


async def _answer_without_body(exchange: _Exchange) -> None:
    """Answer a request without a body."""
    match exchange.path.split("/"):
        case [""]:
            await exchange.send_json(200, {"status": "ok"})
        case ["models"]:
            listed = {
                "object": "list",
                "data": [_MODEL],
                "models": [_MODEL],
                "has_more": False,
                "first_id": "gateway",
                "last_id": "gateway",
            }
            await exchange.send_json(200, listed)
        case ["models", *_]:
            await exchange.send_json(200, _MODEL)
        case _:
            raise _nothing_there("GET", exchange.path)


def _nothing_there(method: str, path: str) -> Refusal:
    served = "POST /v1/chat/completions, /v1/responses, /v1/messages and /v1beta/models/MODEL:generateContent"
    remedy = f"replies come from {served}; anything else, such as embeddings, needs another server"
    return Refusal(f"there is nothing at {method} /{path[:100]}: {remedy}", Fault.NOT_FOUND)


async def _answer(turn: Turn, request: GatewayRequest, exchange: _Exchange) -> None:
    """Answer a request for a reply. The sampled reply is kept, whether or not the client takes it."""
    turn.waiting += 1
    try:
        if request.stream:
            while not await exchange.wait(turn, PING_S):
                if not exchange.begun:
                    await exchange.begin(200, *_STREAM)
                await exchange.write(exchange.protocol.ping)
        else:
            await exchange.wait(turn, None)
        if turn.work is not None and not turn.work.cancelled():
            turn.work.result()
        if turn.sampled is None:
            raise Refusal("the rollout has ended", Fault.TOO_LONG)
        if not request.stream:
            await exchange.send_json(200, exchange.protocol.body(turn.sampled.answer, request))
        else:
            stream = b"".join(exchange.protocol.events(turn.sampled.answer, request))
            kind, header = _STREAM
            await (
                exchange.write(stream, last=True) if exchange.begun else exchange.send_body(200, kind, stream, header)
            )
        turn.taken = True
        exchange.scope.setdefault("extensions", {})[UNTAKEN] = lambda: setattr(turn, "taken", False)
    finally:
        turn.waiting -= 1


def _parse_body(body: bytes) -> Mapping[str, Any]:
    """Return a body's JSON object. Raises Refusal."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = _parse_with_surrogates(body, str(error))
    if not isinstance(value, dict):
        raise Refusal("the body must be a JSON object")
    if _is_deeper(value, MAX_DEPTH):
        raise _too_deep_refusal()
    return value


def _parse_with_surrogates(body: bytes, problem: str) -> Any:
    """Return the value of a body with half of a surrogate pair in it. Such a half is no text: agents cut theirs in the
    middle of a pair. Raises Refusal for any other body that is no JSON."""
    if b"\\ud" in body.lower():
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            pass
    raise Refusal(f"the body is not JSON: {problem}")


def _is_deeper(value: Any, levels: int) -> bool:
    """Tell whether a JSON value is nested more deeply than `levels`. levels: above the limit of orjson (254)."""
    with contextlib.suppress(TypeError):
        orjson.dumps(value)
        return False
    layer = [value]
    for _ in range(levels):
        inside: list[Any] = []
        for one in layer:
            if isinstance(one, dict):
                inside += one.values()
            elif isinstance(one, list):
                inside += one
        layer = [one for one in inside if isinstance(one, dict | list)]
        if not layer:
            return False
    return True


def _tells_body(name: bytes, value: bytes) -> bool:
    return name == b"transfer-encoding" or (name == b"content-length" and value != b"0")


def _too_deep_refusal() -> Refusal:
    return Refusal("the body is nested too deeply")
