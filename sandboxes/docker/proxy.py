"""An HTTP proxy to a list of hosts, for sandboxes without a network; it runs here and is reached through a tunnel."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandboxes.docker.tunnel import Tunnel

PORT = 31280
"""On the loopback of the sandbox."""
_HERE = f"http://127.0.0.1:{PORT}"
_NOT_HERE = "localhost,127.0.0.1,::1"
ENVIRONMENT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _HERE),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _NOT_HERE),
}
_ENTRY = re.compile(r"(\[[0-9a-f:.]+\]|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::(\d{1,5}))?", re.IGNORECASE)
_PORTS = (80, 443)
_HEAD_S = 30.0
_CONNECT_S = 20.0
_DROPPED = (b"host", b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization")


class Refused(Exception):
    """Answered with this status and text."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        fields = (
            f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text.encode()) + 1}\r\nConnection: close"
        )
        self.answer = f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n{text}\n".encode()


@dataclass(frozen=True, slots=True)
class AllowList:
    """Names of hosts with a port each; None stands for 80 and 443. "*.name" is every host below a name."""

    entries: tuple[tuple[str, int | None], ...]

    @classmethod
    def of(cls, hosts: Sequence[str]) -> AllowList:
        """Of entries such as "host.org", "*.host.org", "host:8080", "10.1.2.3:80". Raises ValueError."""
        entries = []
        for host in hosts:
            match = _ENTRY.fullmatch(host)
            if match is None:
                raise ValueError(f'{host!r} is no host; write for example "host.org", "*.host.org" or "host.org:8443"')
            name = f"[{ipaddress.IPv6Address(match[1][1:-1])}]" if match[1].startswith("[") else match[1].lower()
            entries.append((name, int(match[2]) if match[2] else None))
        return cls(tuple(entries))

    def has(self, host: str, port: int) -> bool:
        return any(
            (host == name or (name.startswith("*.") and host.endswith(name[1:])))
            and (port == only if only is not None else port in _PORTS)
            for name, only in self.entries
        )

    def has_address(self, address: str, port: int) -> bool:
        """Whether it may be connected to: a public one, or one that is listed as such, not by a name."""
        ip = ipaddress.ip_address(address)
        return self.has(f"[{ip}]" if ip.version == 6 else str(ip), port) or (
            ip.is_global and not ip.is_multicast and not _leads_elsewhere(ip)
        )


def _leads_elsewhere(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an IPv6 address stands for an IPv4 one, or for a network that translates it to one."""
    return isinstance(ip, ipaddress.IPv6Address) and bool(
        ip.ipv4_mapped or ip.sixtofour or ip.teredo or ip not in ipaddress.ip_network("2000::/3")
    )


async def serve(tunnel: Tunnel, allowed: AllowList) -> None:
    """One connection: CONNECT, or one request for an http:// address."""
    try:
        async with asyncio.timeout(_HEAD_S):
            head = await tunnel.read_until(b"\r\n\r\n")
        host, port, opening, answer = _understand(head)
        reader, writer = await _connect(host, port, allowed)
    except Refused as refused:
        await tunnel.write(refused.answer)
        return
    try:
        await tunnel.write(answer)
        writer.write(opening)
        await _pass(tunnel, reader, writer)
    finally:
        writer.close()


def _understand(head: bytes) -> tuple[str, int, bytes, bytes]:
    """Host, port, what is sent there first, and what is answered first."""
    first, *fields = head[:-4].split(b"\r\n")
    try:
        method, target, version = first.decode("ascii").split(" ")
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = url.hostname, url.port or 80
    except ValueError as error:
        raise Refused("400 Bad Request", "sandbox: not a request to a proxy") from error
    folded = any(field[:1] in (b" ", b"\t") or b"\n" in field for field in fields)
    if not host or version not in ("HTTP/1.0", "HTTP/1.1") or folded:
        raise Refused("400 Bad Request", "sandbox: not a request to a proxy")
    name = f"[{host}]" if ":" in host else host.rstrip(".")
    if method == "CONNECT":
        return name, port, b"", b"HTTP/1.1 200 Connection established\r\n\r\n"
    if url.scheme != "http":
        raise Refused("400 Bad Request", f"sandbox: {url.scheme or 'this'} is not proxied, only http and CONNECT")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [field for field in fields if field.partition(b":")[0].strip().lower() not in _DROPPED]
    # One request a connection: the next might be for another host.
    lines = [f"{method} {path} {version}".encode(), f"Host: {url.netloc.rpartition('@')[2]}".encode()]
    return name, port, b"\r\n".join([*lines, *kept, b"Connection: close", b"", b""]), b""


async def _connect(host: str, port: int, allowed: AllowList) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Looked up once: what was checked is what is connected to."""
    if not allowed.has(host, port):
        raise Refused("403 Forbidden", f"sandbox: {host}:{port} is not among the hosts that may be reached from here")
    try:
        async with asyncio.timeout(_CONNECT_S):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
            addresses = [str(place[0]) for *_, place in found if allowed.has_address(str(place[0]), port)]
            if not addresses:
                raise Refused("403 Forbidden", f"sandbox: {host} has no public address")
            for address in addresses[:-1]:
                try:
                    return await asyncio.open_connection(address, port)
                except OSError:
                    continue
            return await asyncio.open_connection(addresses[-1], port)
    except (OSError, UnicodeError) as error:
        raise Refused("502 Bad Gateway", f"sandbox: {host}:{port} can't be reached: {error}") from error


async def _pass(tunnel: Tunnel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Both ways, until the other side ends."""

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
