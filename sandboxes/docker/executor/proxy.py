"""An HTTP proxy to a list of hosts, for sandboxes without a network; it runs here and is reached through a tunnel."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

from sandboxes.base import Door, Limits
from sandboxes.docker.executor.doors import serve_door
from sandboxes.docker.executor.tunnel import Tunnel, Tunnels
from sandboxes.hosts import AllowList

PORT = 31280
"""On the loopback of the sandbox."""
_HERE = f"http://127.0.0.1:{PORT}"
_LOOPBACK = ("localhost", "127.0.0.1")
_NOT_HERE = ",".join((*_LOOPBACK, "::1"))
ENVIRONMENT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _HERE),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _NOT_HERE),
}
_HEAD_S = 30.0
_CONNECT_S = 20.0
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIRST = re.compile(_TOKEN.pattern + rb" [!-~]+ HTTP/1\.[01]")
_FIELD = re.compile(_TOKEN.pattern + rb":[^\r\n\0]*")
"""The parts of a line (RFC 9112). An end of a line in anybody's reading is one for us, or is refused."""
_DROPPED = (b"host", b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization")


class RefusedRequest(Exception):
    """A refused request, answered with this status and text."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        fields = (
            f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text.encode()) + 1}\r\nConnection: close"
        )
        self.answer = f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n{text}\n".encode()


LOOKUPS = 4
"""Simultaneous look-ups of names for one sandbox."""


async def serve(tunnel: Tunnel, allowed: AllowList, doors: Mapping[int, Door], names: Executor) -> None:
    """Serve one connection: CONNECT, or one request for an http:// address.

    doors: by their ports; some clients ask a proxy even for servers on their own loopback.
    names: an executor for look-ups of names, one sandbox's alone: a silent name server holds a thread, and the event
        loop's own threads are for everybody's work."""
    try:
        async with asyncio.timeout(_HEAD_S):
            head = await tunnel.read_until(b"\r\n\r\n")
        host, port, opening, answer = _parse_request(head)
        door = doors.get(port) if host in _LOOPBACK else None
        if door is None:
            reader, writer = await _connect(host, port, allowed, names)
    except RefusedRequest as refused:
        await tunnel.write(refused.answer)
        return
    if door is not None:
        await tunnel.write(answer)
        await serve_door(tunnel, door, opening)
        return
    try:
        await tunnel.write(answer)
        writer.write(opening)
        await _relay(tunnel, reader, writer)
    finally:
        writer.transport.abort()  # who is there has ended or is of no use now; to close it would wait until all is sent


def _parse_request(head: bytes) -> tuple[str, int, bytes, bytes]:
    """Return host, port, the first bytes to the host, and the first bytes of the answer. Raises RefusedRequest."""
    first, *fields = head[:-4].split(b"\r\n")
    if not _FIRST.fullmatch(first) or not all(_FIELD.fullmatch(field) for field in fields):
        raise RefusedRequest("400 Bad Request", "sandbox: not a request to a proxy")
    try:
        method, target, version = first.decode("ascii").split(" ")
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = url.hostname, url.port or 80
    except ValueError as error:
        raise RefusedRequest("400 Bad Request", "sandbox: not a request to a proxy") from error
    if not host:
        raise RefusedRequest("400 Bad Request", "sandbox: not a request to a proxy")
    name = f"[{host}]" if ":" in host else host.rstrip(".")
    if method == "CONNECT":
        return name, port, b"", b"HTTP/1.1 200 Connection established\r\n\r\n"
    if url.scheme != "http":
        raise RefusedRequest(
            "400 Bad Request", f"sandbox: {url.scheme or 'this'} is not proxied, only http and CONNECT"
        )
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [field for field in fields if field.partition(b":")[0].strip().lower() not in _DROPPED]
    # One request a connection: the next might be for another host.
    lines = [f"{method} {path} {version}".encode(), f"Host: {url.netloc.rpartition('@')[2]}".encode()]
    return name, port, b"\r\n".join([*lines, *kept, b"Connection: close", b"", b""]), b""


async def _connect(
    host: str, port: int, allowed: AllowList, names: Executor
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a host after one look-up: the connection goes to the checked address. Raises RefusedRequest."""
    if not allowed.has(host, port):
        raise RefusedRequest(
            "403 Forbidden", f"sandbox: {host}:{port} is not among the hosts that may be reached from here"
        )
    try:
        async with asyncio.timeout(_CONNECT_S):
            look_up = partial(socket.getaddrinfo, host.strip("[]"), port, type=socket.SOCK_STREAM)
            found = await asyncio.get_running_loop().run_in_executor(names, look_up)
            addresses = [str(place[0]) for *_, place in found if allowed.has_address(str(place[0]), port)]
            if not addresses:
                raise RefusedRequest("403 Forbidden", f"sandbox: {host} has no public address")
            for address in addresses[:-1]:
                try:
                    return await asyncio.open_connection(address, port)
                except OSError:
                    continue
            return await asyncio.open_connection(addresses[-1], port)
    except (OSError, UnicodeError) as error:
        raise RefusedRequest("502 Bad Gateway", f"sandbox: {host}:{port} can't be reached: {error}") from error


async def _relay(tunnel: Tunnel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on data, both ways, until the other side ends."""

    async def send() -> None:
        while data := await tunnel.read():
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    try:
        while data := await reader.read(1 << 16):
            await tunnel.write(data)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def tunnels_of(limits: Limits, doors: Mapping[int, Door]) -> Tunnels:
    """Serve connections out of a sandbox: through its doors, and to its allowed hosts."""
    allowed = AllowList.of(limits.allowed_hosts)
    names = ThreadPoolExecutor(LOOKUPS, "sandbox names")

    async def connected(tunnel: Tunnel, port: int) -> None:
        if port == PORT:
            await serve(tunnel, allowed, doors, names)
        elif port in doors:
            await serve_door(tunnel, doors[port])

    return Tunnels(connected)
