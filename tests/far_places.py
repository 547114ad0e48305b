"""Places that pages name, such as `https://api.anthropic.com`, answered by servers on this machine."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
import uvicorn
from anyio.from_thread import start_blocking_portal
from anyio.streams.tls import TLSListener
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

_LEADS = '''"""Lead a program's connections to some places to ports of this machine."""

import fnmatch
import json
import os
import socket

PLACES, find, connect = json.loads(os.environ["FAR_PLACES"]), socket.getaddrinfo, socket.socket.connect


def port_here(host, port):
    place = f"{host.decode() if isinstance(host, bytes) else host}:{port}"
    return next((here for known, here in PLACES.items() if fnmatch.fnmatchcase(place, known)), None)


def getaddrinfo(host, port, *rest, **more):
    here = port_here(host, port)
    return find(host, port, *rest, **more) if here is None else find("127.0.0.1", here, *rest, **more)


def connect_here(self, address):
    here = port_here(*address[:2]) if isinstance(address, tuple) else None
    return connect(self, address if here is None else ("127.0.0.1", here))


socket.getaddrinfo, socket.socket.connect = getaddrinfo, connect_here
'''


def leads(folder: Path, places: Mapping[str, int]) -> dict[str, str]:
    """Return the environment of a Python program that finds the servers of places, `HOST:PORT`, at ports here."""
    (folder / "sitecustomize.py").write_text(_LEADS)
    return {"PYTHONPATH": str(folder), "FAR_PLACES": json.dumps(places)}


class Authority:
    """A certificate for names, which a program with `environment` believes."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.certificate, self.key = folder / "far.pem", folder / "far-key.pem"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-keyout", str(self.key), "-out", str(self.certificate), "-subj", "/CN=far", "-days", "2"]
        words += ["-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)]
        subprocess.run(words, check=True, capture_output=True)
        self.environment = {"SSL_CERT_FILE": str(self.certificate)}


@contextmanager
def secured(authority: Authority, port: int) -> Iterator[int]:
    """Serve what a port of this machine serves with TLS. Yields the port for it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.certificate, authority.key)

    async def pass_on(one: anyio.abc.ByteStream, other: anyio.abc.ByteStream) -> None:
        try:
            async for data in one:
                await other.send(data)
            await other.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, NotImplementedError):
            pass  # the other side went first; TLS has no half of an end

    async def relay(asking: anyio.abc.ByteStream) -> None:
        async with asking, await anyio.connect_tcp("127.0.0.1", port) as server, anyio.create_task_group() as group:
            group.start_soon(pass_on, asking, server)
            await pass_on(server, asking)
            group.cancel_scope.cancel()

    async def listen() -> tuple[TLSListener, int]:
        plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
        found = plain.listeners[0].extra(anyio.abc.SocketAttribute.local_port)
        return TLSListener(plain, context, standard_compatible=False), found

    with start_blocking_portal() as portal:
        listener, here = portal.call(listen)
        serving = portal.start_task_soon(listener.serve, relay)
        try:
            yield here
        finally:
            serving.cancel()
            portal.call(listener.aclose)


class Hub:
    """A hub with one dataset in one revision, as huggingface_hub asks for it."""

    def __init__(self, name: str, revision: str, folder: Path) -> None:
        self.name, self.revision, self.folder = name, revision, folder
        api, file = f"/api/datasets/{name}", f"/datasets/{name}/resolve/{revision}/{{path:path}}"
        self.app = Starlette(
            routes=[
                Route("/", lambda _: Response()),
                Route(f"{api}/revision/{revision}", self._info),
                Route(f"{api}/tree/{revision}", self._tree),
                Route(file, self._file),
            ]
        )

    def _files(self) -> list[Path]:
        return [path for path in sorted(self.folder.rglob("*")) if path.is_file()]

    async def _info(self, _: Request) -> JSONResponse:
        names = [{"rfilename": str(path.relative_to(self.folder))} for path in self._files()]
        return JSONResponse({"id": self.name, "sha": self.revision, "siblings": names})

    async def _tree(self, _: Request) -> JSONResponse:
        found = [(str(path.relative_to(self.folder)), path.stat().st_size) for path in self._files()]
        return JSONResponse([{"type": "file", "path": path, "size": size, "oid": "0" * 40} for path, size in found])

    async def _file(self, request: Request) -> Response:
        path = self.folder / request.path_params["path"]
        if not path.is_file():
            return Response(status_code=404)
        return FileResponse(path, headers={"X-Repo-Commit": self.revision, "ETag": f'"{path.stat().st_size}"'})


@contextmanager
def served(app: Starlette) -> Iterator[int]:
    """Serve an app on a free port of loopback."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        threading.Event().wait(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(60)
