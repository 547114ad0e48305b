"""The door of an agent's sandbox: HTTP, answered by the session of the present rollout."""

from __future__ import annotations

import asyncio

import uvicorn
from uvicorn.server import ServerState

from atropos_agent.gateway import Session
from atropos_agent.gateway.app import Receive, Scope, Send
from atropos_agent.gateway.connection import Connection

_HEAD_S = 60.0
"""How long a request's head may take: a sandbox may have little of its processor."""
_KEEP_ALIVE_S = 600
"""How long a connection may rest between two requests: agents run commands meanwhile."""


class _Connection(Connection):
    head_s = _HEAD_S


class Entrance:
    """A sandbox's door for HTTP. Calling it makes the protocol of one connection.

    session: the owner of the requests; None while nothing works in the sandbox: requests are turned away."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self._config = uvicorn.Config(
            self.handle,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        self._config.load()
        self._state = ServerState()

    def __call__(self) -> asyncio.Protocol:
        return _Connection(config=self._config, server_state=self._state, app_state={})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: an ASGI application."""
        if self.session is not None:
            await self.session.handle(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 410, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
