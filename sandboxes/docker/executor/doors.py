"""Doors of a sandbox: a connection made inside, served by a protocol of asyncio's in this process."""

from __future__ import annotations

import asyncio
from typing import Any

from sandboxes.base import Door, SandboxSpec
from sandboxes.docker.executor.tunnel import Tunnel

_FIRST_PORT = 31281
_PIECE = 64 << 10
_STALL_S = 300.0
"""How long a client may take no data; then it is cut off."""
_CLOSING_S = 30.0
"""The same for a connection that is closed already."""


def door_ports(spec: SandboxSpec) -> dict[str, int]:
    """Return the port of each door on the sandbox's loopback, by its name: the same in every sandbox of the spec."""
    return {name: _FIRST_PORT + place for place, name in enumerate(spec.doors)}


async def serve_door(tunnel: Tunnel, door: Door, first: bytes = b"") -> None:
    """Have a door's protocol serve a connection, until it closes it or its client is gone.

    first: data for the protocol before the tunnel's. Raises OSError for a client that takes
    nothing any more, and the errors of the tunnel and the protocol.
    """
    protocol = door()
    transport = _Transport(tunnel, protocol)
    lost: BaseException | None = None
    protocol.connection_made(transport)
    receiving = asyncio.create_task(transport.receive(first), name="sandbox door")
    try:
        await transport.send_all()
    except asyncio.CancelledError:
        # A sandbox that ends does not take back what its client has had.
        if tunnel.reset or not (tunnel.is_drained and transport.get_write_buffer_size() == 0):
            lost = ConnectionResetError("the client is gone, or its sandbox")
        raise
    except (OSError, EOFError) as error:
        lost = error
        raise
    finally:
        receiving.cancel()
        await asyncio.wait({receiving})
        lost = lost if receiving.cancelled() else receiving.exception() or lost
        transport.abort()  # a protocol that writes on gets this error
        protocol.connection_lost(lost if isinstance(lost, Exception) else None)
    if lost is not None:
        raise lost


class _Transport(asyncio.Transport):
    """A tunnel in the form of a protocol's transport; the protocol's own pauses bound its incoming data."""

    def __init__(self, tunnel: Tunnel, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._tunnel = tunnel
        self._protocol: asyncio.BaseProtocol = protocol
        self._out = bytearray()
        self._changed = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        self._closing = self._paused = False
        self._eof: bool | None = None
        """Whether the end of the data has yet to be reported to the client; None if more data may come."""
        self._high, self._low = _PIECE, _PIECE // 4

    async def send_all(self) -> None:
        """Pass on the protocol's data, until it closes the connection."""
        while self._out or not self._closing:
            if self._eof and not self._out:
                self._eof = False
                await self._tunnel.write_eof()
            elif not self._out:
                self._changed.clear()
                await self._changed.wait()
            if not self._out:
                continue
            piece = bytes(self._out[:_PIECE])
            del self._out[:_PIECE]
            async with asyncio.timeout(_CLOSING_S if self._closing else _STALL_S):  # TimeoutError is an OSError
                await self._tunnel.write(piece)
            if self._paused and len(self._out) <= self._low:
                self._paused = False
                self._protocol.resume_writing()

    async def receive(self, first: bytes) -> None:
        """Give the protocol the client's data."""
        try:
            data = first or await self._tunnel.read()
            while data:
                await self._reads.wait()
                if not self._closing and isinstance(self._protocol, asyncio.Protocol):
                    self._protocol.data_received(data)
                data = await self._tunnel.read()
            if not (isinstance(self._protocol, asyncio.Protocol) and self._protocol.eof_received()):
                self.close()
        except Exception:  # of the protocol behind the door: it goes on, and the connection ends
            self.abort()
            raise

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        if self._eof is not None:
            raise RuntimeError("write_eof has ended what is written")
        self._out += data
        self._changed.set()
        if not self._paused and len(self._out) > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        self._closing = True
        self._changed.set()

    def abort(self) -> None:
        self._out.clear()
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._eof is None:
            self._eof = True
            self._changed.set()

    def pause_reading(self) -> None:
        self._reads.clear()

    def resume_reading(self) -> None:
        self._reads.set()

    def get_write_buffer_size(self) -> int:
        return len(self._out)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else _PIECE if low is None else 4 * low
        self._low = low if low is not None else self._high // 4

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default
