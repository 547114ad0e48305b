"""An agent's connection: it is closed when the agent is slow, and reports an answer that was not taken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from atropos_agent.gateway.app import UNTAKEN

logger = logging.getLogger(__name__)
logger.setLevel(logging.ERROR)  # what is wrong with a client's requests is its own business, and may have no end

_LINES, _LINE = 200, 64
"""Lines of chunks that come at once, and bytes of each on an average: a megabyte in chunks of a byte holds up the event
loop for two seconds."""


class Connection(H11Protocol):
    """HTTP/1.1 for one client. A client that goes away with bytes unread resets the connection: then it has not had the
    last byte. The same holds for a client that closed it before the bytes were written."""

    head_s = 20.0
    """Seconds within which a request's head must have come."""
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.logger = logger
        self._late = self.loop.call_later(self.head_s, transport.close)

    def data_received(self, data: bytes) -> None:
        if data.count(b"\r\n") > _LINES + len(data) // _LINE and self._is_chunked():
            self.transport.abort()
            return
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # what it sends is wrong, and it is being answered: nothing else can be sent
            self.transport.abort()
            return
        begun = self.conn.their_state is not h11.IDLE
        if begun and self._late is not None:
            self._late.cancel()
            self._late = None
        elif not begun and self._late is None:
            self._late = self.loop.call_later(self.head_s, self.transport.close)

    def _is_chunked(self) -> bool:
        return self.scope is not None and any(name == b"transfer-encoding" for name, _ in self.scope["headers"])

    def eof_received(self) -> None:
        """Take note that the client has gone away: everything written from now on is dropped, before the connection is
        reported lost."""
        super().eof_received()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()
        if exc is not None and self.scope is not None:
            extensions: Mapping[str, Callable[[], None]] = self.scope.get("extensions") or {}  # type: ignore[assignment]
            if UNTAKEN in extensions:
                extensions[UNTAKEN]()
