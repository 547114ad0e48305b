"""The way out of a sandbox to listed hosts, and that there is no other."""

import asyncio
import contextlib
import resource
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.base import Limits, Sandbox, SandboxSpec
from sandboxes.docker.daemon.starter import tunnels_of
from sandboxes.docker.executor.proxy import PORT, serve
from sandboxes.docker.executor.tunnel import TUNNEL, Tunnel
from sandboxes.hosts import AllowList

_CLIENT = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", {PORT}), 20) as s:
    s.sendall(sys.stdin.buffer.read())
    while data := s.recv(65536):
        sys.stdout.buffer.write(data)
"""


class Server:
    """Of the machine's loopback. Says which request it got; echoes what comes over a connection that begins with
    an empty line; floods one that begins with FLOOD."""

    def __init__(self) -> None:
        self.heads = []
        self.left = asyncio.Event()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc):
        self._server.close()

    async def _serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if (first := await reader.readline()) == b"FLOOD\n":
                while True:
                    writer.write(b"x" * 65536)
                    await writer.drain()
            elif first == b"\n":
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
            else:
                self.heads.append(first + await reader.readuntil(b"\r\n\r\n"))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        self.left.set()
        writer.close()


@pytest.fixture
async def server():
    async with Server() as server:
        yield server


@pytest.fixture
def spec(base_image, server):
    hosts = (f"127.0.0.1:{server.port}", "*.invalid")
    return SandboxSpec(base_image, workdir="/app", limits=Limits(allowed_hosts=hosts))


@pytest.fixture
async def box(docker_backend, spec):
    async with docker_backend.open(spec) as box:
        yield box


async def ask(box: Sandbox, request: str) -> str:
    """What the proxy answers."""
    result = await box.exec(["python3", "-c", _CLIENT], stdin=request.encode(), timeout=30)
    assert result.ok, result.output
    return result.output


@pytest.mark.docker
class TestAListedHost:
    async def test_an_ordinary_client_reaches_it_by_its_environment_alone(self, box, server):
        get = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{server.port}/a?b=c').read().decode())"
        no_exceptions = {"NO_PROXY": "", "no_proxy": ""}  # else loopback is not asked of a proxy
        result = await box.exec(["python3", "-c", get], env=no_exceptions)
        assert result.output == "hello\n"
        shell = await box.session(env=no_exceptions)
        assert (await shell.run(f'python3 -c "{get}"')).output == "hello\n"

    async def test_it_sees_a_request_as_if_it_came_directly(self, box, server):
        name = f"127.0.0.1:{server.port}"
        head = f"GET http://user:word@{name}/a?b=c HTTP/1.1\r\nhost: other\r\nX: y\r\n"
        answer = await ask(box, f"{head}Proxy-Authorization: secret\r\nProxy-Connection: keep-alive\r\n\r\n")
        assert answer.endswith("\r\n\r\nhello")
        assert server.heads == [f"GET /a?b=c HTTP/1.1\r\nHost: {name}\r\nX: y\r\nConnection: close\r\n\r\n".encode()]

    async def test_megabytes_go_both_ways(self, box, server):
        script = f"""
import hashlib, os, socket, threading
s = socket.create_connection(("127.0.0.1", {PORT}))
s.sendall(b"CONNECT 127.0.0.1:{server.port} HTTP/1.1\\r\\n\\r\\n")
assert s.recv(39, socket.MSG_WAITALL) == b"HTTP/1.1 200 Connection established\\r\\n\\r\\n"
data = os.urandom(20_000_000)
threading.Thread(target=lambda: (s.sendall(b"\\n" + data), s.shutdown(socket.SHUT_WR))).start()
back = b"".join(iter(lambda: s.recv(1 << 20), b""))
print(len(back), back == data)
"""
        assert (await box.exec(["python3", "-c", script], timeout=60)).output == "20000000 True\n"

    async def test_a_hundred_connections_at_once_are_served(self, box, server):
        script = f"""
import socket, concurrent.futures
def ask(n):
    with socket.create_connection(("127.0.0.1", {PORT}), 30) as s:
        s.sendall(b"GET http://127.0.0.1:{server.port}/%d HTTP/1.1\\r\\n\\r\\n" % n)
        return b"".join(iter(lambda: s.recv(9999), b"")).endswith(b"hello")
with concurrent.futures.ThreadPoolExecutor(100) as pool:
    print(sum(pool.map(ask, range(100))))
"""
        assert (await box.exec(["python3", "-c", script], timeout=60)).output == "100\n"
        assert len(server.heads) == 100

    async def test_a_flood_costs_a_fixed_buffer_and_ends_with_the_command(self, box, server):
        script = f"""
import socket, time
s = socket.create_connection(("127.0.0.1", {PORT}))
s.sendall(b"CONNECT 127.0.0.1:{server.port} HTTP/1.1\\r\\n\\r\\nFLOOD\\n")
time.sleep(60)
"""
        before = _resident_mb()
        assert (await box.exec(["python3", "-c", script], timeout=2)).timed_out
        assert _resident_mb() - before < 8
        assert int((await box.exec("grep VmHWM /proc/1/status")).output.split()[1]) < 4000  # kB
        async with asyncio.timeout(120):
            await server.left.wait()

    async def test_connections_end_with_their_sandbox(self, docker_backend, spec, server):
        async with docker_backend.open(spec) as box:
            request = f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\\r\\n\\r\\n\\nheld"
            script = (
                f"import socket, time; s = socket.create_connection(('127.0.0.1', {PORT})); s.sendall(b'{request}'); "
                "s.recv(1); open('held', 'w'); time.sleep(60)"
            )
            await box.exec(f'python3 -c "{script}" & until [ -e held ]; do sleep 0.1; done')
            assert not server.left.is_set()
        async with asyncio.timeout(120):
            await server.left.wait()

    async def test_a_reset_and_a_forked_sandbox_reach_it_too(self, box, server):
        request = f"GET http://127.0.0.1:{server.port}/ HTTP/1.1\r\n\r\n"
        await box.reset()
        assert (await ask(box, request)).endswith("hello")
        async with box.fork(1) as (fork,):
            assert (await ask(fork, request)).endswith("hello")


@pytest.mark.docker
class TestEverythingElse:
    async def test_what_is_not_listed_is_refused(self, box):
        for name in (
            "127.0.0.1:1",
            "example.org:80",
            "example.org:443",
            "169.254.169.254:80",
            "invalid:80",
            "x.invalid:8080",
        ):
            for request in (f"CONNECT {name} HTTP/1.1", f"GET http://{name}/ HTTP/1.1"):
                answer = await ask(box, f"{request}\r\nHost: localhost\r\n\r\n")
                assert answer.startswith("HTTP/1.1 403 ") and "not among the hosts" in answer

    async def test_a_listed_name_does_not_lead_to_an_address_that_is_not_public(self, docker_backend, spec, server):
        limits = Limits(allowed_hosts=(f"localhost:{server.port}",))
        async with docker_backend.open(replace(spec, limits=limits)) as box:
            answer = await ask(box, f"CONNECT localhost:{server.port} HTTP/1.1\r\n\r\n")
        assert answer.startswith("HTTP/1.1 403 ") and "localhost has no public address" in answer

    async def test_another_spelling_of_an_address_is_not_what_is_listed(self, box, server):
        for other in ("127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"):
            answer = await ask(box, f"CONNECT {other}:{server.port} HTTP/1.1\r\n\r\n")
            assert answer.startswith("HTTP/1.1 403 "), other

    async def test_what_is_no_request_to_a_proxy_is_refused(self, box, server):
        name = f"127.0.0.1:{server.port}"
        lines = ["", "GET / HTTP/1.1", "GET ftp://x/ HTTP/1.1", "\0\xff", "A B C D", f"GET http://{name}/ HTTP/3"]
        for line in [
            *lines,
            f"GET http://{name}/ HTTP/1.1\r\nX: y\nHost: z",
            f"GET http://{name}/ HTTP/1.1\r\n Host: z",
            f"GET\nX http://{name}/ HTTP/1.1",
            f"GET http://{name}/\nX: HTTP/1.1",
            f"GET http://{name}/ HTTP/1.1\nX: y",
            f"GET http://{name}/ HTTP/1.1\r\nX: y\nHost: z",
            f"GET http://{name}/ HTTP/1.1\r\nX: y\rHost: z",
            f"GET http://{name}/ HTTP/1.1\r\nHost : z",
            f"GET http://{name}/ HTTP/1.1\r\nno field",
        ]:
            assert (await ask(box, f"{line}\r\n\r\n")).startswith("HTTP/1.1 400 "), line
        assert server.heads == []

    async def test_a_head_without_an_end_is_cut_off(self, box):
        assert await ask(box, "x" * 100_000) == ""
        assert (await box.exec("echo fine")).output == "fine\n"

    async def test_there_is_still_no_network(self, box):
        assert (await box.exec("ls /sys/class/net")).output == "lo\n"
        connect = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=3)"
        assert "Network is unreachable" in (await box.exec(["python3", "-c", connect])).output

    async def test_a_sandbox_without_a_list_has_no_proxy(self, docker_backend, spec):
        async with docker_backend.open(replace(spec, limits=Limits())) as box:
            assert (await box.exec("env | grep -i proxy")).output == ""
            assert "refused" in (await box.exec(["python3", "-c", _CLIENT])).output


@pytest.mark.docker
class TestAListThatIsNone:
    async def test_a_list_that_is_none_is_told_at_once(self, docker_backend, spec):
        wrong = replace(spec, limits=Limits(allowed_hosts=("http://x",)))
        with pytest.raises(ValueError, match="is no host"):
            docker_backend.prepare(wrong, 1)
        with pytest.raises(ValueError, match="is no host"):
            async with docker_backend.open(wrong):
                pass


def _resident_mb() -> float:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


class Deaf(asyncio.Protocol):
    """A host that accepts, and reads nothing."""

    def connection_made(self, transport):
        transport.pause_reading()
        self.transport = transport


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_host_that_reads_nothing_is_left_with_the_connection():
    async def send(number, kind, payload):
        pass

    deaf = Deaf()
    async with await asyncio.get_running_loop().create_server(lambda: deaf, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        names = ThreadPoolExecutor(1)
        await asyncio.get_running_loop().run_in_executor(names, socket.getaddrinfo, "127.0.0.1", port)
        before = descriptors()
        tunnel = Tunnel(1, send)
        serving = asyncio.create_task(serve(tunnel, AllowList.of([f"127.0.0.1:{port}"]), {}, names))
        tunnel.receive(b"O", f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode() + b"x" * 20_000_000)
        await asyncio.sleep(0.3)
        assert descriptors() == before + 2, "both ends of the connection"
        serving.cancel()
        await asyncio.wait([serving])
        await asyncio.sleep(0.1)
        assert descriptors() == before + 1
        deaf.transport.abort()


async def test_a_name_server_that_is_silent_holds_no_thread_of_others(monkeypatch):
    async def send(number, kind, payload):
        pass

    asked, answers = threading.Event(), threading.Event()

    def silent(*_, **__):
        asked.set()
        answers.wait(120)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    tunnels = tunnels_of(Limits(allowed_hosts=("*.example.org",)), {})
    for number in range(60):
        tunnels.receive(TUNNEL | number, b"A", struct.pack("<I", PORT), send)
        tunnels.receive(TUNNEL | number, b"O", b"CONNECT %d.example.org:443 HTTP/1.1\r\n\r\n" % number, send)
    await asyncio.sleep(0.2)
    assert await asyncio.wait_for(asyncio.to_thread(asked.is_set), 5), "others' work is done meanwhile"
    tunnels.end(ConnectionError())
    answers.set()
