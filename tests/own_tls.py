"""A TLS server with certificates of a test's own, good and wrong ones, made by openssl."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

_NAMED = "subjectAltName=IP:127.0.0.1"
_KEY = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
_BODY = '{"ApiVersion": "1.41", "Arch": "amd64"}'
_KINDS = {
    "good": f"{_NAMED} 2",
    "expired": f"{_NAMED} -1",
    "of another host": "subjectAltName=DNS:other.example 2",
    "client": "extendedKeyUsage=clientAuth 2",
}


@pytest.fixture
def as_python_3_13_trusts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Python's settings want of certificates what they do from Python 3.13 on."""
    original = ssl.create_default_context

    def strict(*args: object, **keywords: object) -> ssl.SSLContext:
        tls = original(*args, **keywords)
        tls.verify_flags |= ssl.VERIFY_X509_STRICT
        return tls

    monkeypatch.setattr(ssl, "create_default_context", strict)


def authority(folder: Path) -> Path:
    """Make a CA in a folder as Docker's clients want it: ca.pem, cert.pem, key.pem."""
    folder.mkdir()
    _sh(folder, f"{_KEY} -x509 -keyout ca-key.pem -out ca.pem -days 2 -subj /CN=ca")
    certify(folder, "client", "key.pem", "cert.pem")
    return folder


@asynccontextmanager
async def served(by: Path, kind: str) -> AsyncIterator[int]:
    """Serve a Docker daemon's version to clients with a certificate of the CA `by`. Yields the port of loopback."""
    certify(by, kind, "server-key.pem", "server.pem")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(by / "server.pem", by / "server-key.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(_BODY)}"
        writer.write(f"{head}\r\nConnection: close\r\n\r\n{_BODY}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


def certify(by: Path, kind: str, key: str, certificate: str) -> None:
    extension, days = _KINDS[kind].split(" ")
    (by / "use").write_text(extension)
    _sh(by, f"{_KEY} -keyout {key} -out request -subj /CN=a")
    _sh(by, f"openssl x509 -req -in request -CA ca.pem -CAkey ca-key.pem -out {certificate} -days {days} -extfile use")


def _sh(folder: Path, command: str) -> None:
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
