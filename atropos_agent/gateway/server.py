"""The gateway: an address for agents, with a key of its own for every rollout."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from atroposlib.envs.server_handling.server_baseline import APIServer

from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.app import Receive, Scope, Send, deny
from atropos_agent.gateway.connection import Connection
from atropos_agent.gateway.session import Session
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig

CONNECTIONS = 4096
"""Connections and requests at once; more are answered with 503."""


class Gateway:
    """Listens on loopback, or on a Unix socket, for the agents of many rollouts. Use it as `async with`.

    path: of the Unix socket; None listens on a free port of 127.0.0.1.
    address: the URL it listens on, such as "http://127.0.0.1:41234"; "" before it is entered. On a Unix socket the
        host is a name without a meaning.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.address = ""
        self._sessions: dict[bytes, Session] = {}

    async def __aenter__(self) -> Gateway:
        config = uvicorn.Config(
            self.handle,
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=120,
            limit_concurrency=CONNECTIONS,
        )
        self._socket = _listen(self.path)
        self.address = "http://gateway" if self.path else f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = _EmbeddedServer(config)
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        await self._server.listening.wait()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        await self._serving
        self._socket.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def session(
        self,
        server: APIServer,
        template: ChatTemplate | None,
        tool_format: FittedFormat,
        config: AgentConfig | None = None,
        **options: Any,
    ) -> AsyncIterator[Session]:
        """Open a rollout's session under a new key. The arguments are `Session`'s."""
        key = secrets.token_urlsafe(24)
        session = Session(server, template, tool_format, config, api_key=key, address=self.address, **options)
        async with session:
            self._sessions[key.encode()] = session
            try:
                yield session
            finally:
                del self._sessions[key.encode()]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of any session's agent, known by its key: this is the ASGI application of the server."""
        session = self._session_of(scope)
        if session is None:
            await deny(scope, receive, send)
        else:
            await session.handle(scope, receive, send)

    def _session_of(self, scope: Scope) -> Session | None:
        headers = dict(scope["headers"])
        scheme, _, token = headers.get(b"authorization", b"").strip().partition(b" ")
        named = headers.get(b"x-api-key") or headers.get(b"x-goog-api-key")
        given = (
            named
            or (token.strip() if scheme.lower() == b"bearer" else scheme)
            or _key_in(scope.get("query_string", b""))
        )
        found = None
        # All are compared, each in constant time, so that the time tells nothing of a key.
        for key, session in self._sessions.items():
            if hmac.compare_digest(key, given):
                found = session
        return found


class _EmbeddedServer(uvicorn.Server):
    """A server inside another program with signals of its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def _key_in(query: bytes) -> bytes:
    """Return the key in a query: Google's clients may send it there."""
    return next((one[4:] for one in query.split(b"&") if one.startswith(b"key=")), b"")


def _listen(path: Path | None) -> socket.socket:
    if path is None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        return listener
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener
