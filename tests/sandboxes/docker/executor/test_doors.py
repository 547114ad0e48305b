"""Doors: connections that are made in a sandbox and served here."""

import asyncio
import resource
import struct

import pytest
from aiohttp import web

from sandboxes.base import Limits, SandboxSpec
from sandboxes.docker import DockerBackend, PoolLimits
from sandboxes.docker.executor import doors
from sandboxes.docker.executor.doors import door_ports, serve_door
from sandboxes.docker.executor.tunnel import TUNNEL, Tunnel

NUMBER = TUNNEL | 1


class Client:
    """The sandbox's end of a tunnel. taken: whether it takes what it is sent."""

    def __init__(self, taken=True):
        self.tunnel = Tunnel(NUMBER, self.send)
        self.taken = taken
        self.got = bytearray()

    async def send(self, _number, kind, payload):
        if kind == b"D":
            self.got += payload
            if self.taken:
                self.take(len(payload))

    def take(self, size):
        self.tunnel.receive(b"G", struct.pack("<I", size))

    def says(self, data):
        self.tunnel.receive(b"O", data)

    def ends(self):
        self.tunnel.receive(b"Z", b"")


class Echo(asyncio.Protocol):
    """Says what it hears, until it hears a dot."""

    def __init__(self):
        self.lost = []
        self.paused = []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if data == b"!":
            raise ZeroDivisionError
        self.transport.write(data)
        if data.endswith(b"."):
            self.transport.close()
            self.transport.write(b"too late")

    def pause_writing(self):
        self.paused.append(True)

    def resume_writing(self):
        self.paused.append(False)

    def connection_lost(self, error):
        self.lost.append(error)


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


class TestAProtocol:
    async def test_hears_what_the_client_says_and_is_heard_to_the_last_byte(self):
        client, echo = Client(), Echo()
        serving = asyncio.create_task(serve_door(client.tunnel, lambda: echo, b"first "))
        await settled()
        client.says(b"second.")
        await asyncio.wait_for(serving, 120)
        assert (bytes(client.got), echo.lost) == (b"first second.", [None])

    async def test_a_client_that_says_no_more_is_answered_and_left(self):
        client, echo = Client(), Echo()
        client.says(b"a")
        client.ends()
        await asyncio.wait_for(serve_door(client.tunnel, lambda: echo), 5)
        assert (bytes(client.got), echo.lost) == (b"a", [None])

    async def test_is_told_to_wait_for_a_client_that_takes_nothing_and_to_go_on(self):
        client, echo = Client(taken=False), Echo()
        serving = asyncio.create_task(serve_door(client.tunnel, lambda: echo, b"x" * 300_000))
        await settled()
        assert (len(client.got), echo.paused) == (128 << 10, [True])
        for _ in range(3):
            client.take(100_000)
            await settled()
        assert (len(client.got), echo.paused) == (300_000, [True, False])
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    @pytest.mark.parametrize(
        ("taken", "reset", "lost"),
        [(True, False, type(None)), (True, True, ConnectionResetError), (False, False, ConnectionResetError)],
    )
    async def test_whose_sandbox_ends_was_heard_where_its_client_had_it_all(self, taken, reset, lost):
        client, echo = Client(taken=taken), Echo()
        serving = asyncio.create_task(serve_door(client.tunnel, lambda: echo, b"hi"))
        await settled()
        if reset:
            client.tunnel.receive(b"Y", b"")
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert [type(error) for error in echo.lost] == [lost]

    async def test_that_reads_no_more_leaves_the_client_without_credit(self):
        client, echo = Client(), Echo()
        serving = asyncio.create_task(serve_door(client.tunnel, lambda: echo))
        await settled()
        echo.transport.pause_reading()
        client.says(b"later.")
        await settled()
        assert bytes(client.got) == b""
        echo.transport.resume_reading()
        await asyncio.wait_for(serving, 120)
        assert bytes(client.got) == b"later."

    async def test_a_client_that_takes_nothing_for_too_long_is_cut_off(self, monkeypatch):
        monkeypatch.setattr(doors, "_STALL_S", 0.01)
        client, echo = Client(taken=False), Echo()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(serve_door(client.tunnel, lambda: echo, b"x" * 300_000), 5)
        assert [type(error) for error in echo.lost] == [TimeoutError]

    async def test_that_fails_loses_its_connection(self):
        client, echo = Client(), Echo()
        client.says(b"!")
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(serve_door(client.tunnel, lambda: echo), 5)
        assert [type(error) for error in echo.lost] == [ZeroDivisionError]


def test_doors_have_the_same_ports_in_every_sandbox():
    spec = SandboxSpec("image", doors={"one": Echo, "two": Echo})
    assert door_ports(spec) == {"one": 31281, "two": 31282}


class App:
    """An HTTP server that counts what it is sent."""

    def __init__(self):
        self.bodies = []
        self.server = web.Server(self.answer)

    async def answer(self, request):
        size = 0
        async for piece in request.content.iter_any():
            size += len(piece)
        self.bodies.append(size)
        if request.path == "/flood":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65536)
        return web.Response(text=f"{request.method} {request.path} {size}")


@pytest.fixture
async def app():
    app = App()
    yield app
    await app.server.shutdown(1)


_GET = """
import urllib.request as u
print(u.urlopen("http://ADDRESS/path", data=b"x" * SIZE, timeout=60).read().decode())
"""


async def ask(box, size=3, **options):
    script = _GET.replace("ADDRESS", box.door("app")).replace("SIZE", str(size))
    return (await box.exec(["python3", "-c", script], timeout=120, **options)).output


@pytest.mark.docker
class TestAnHTTPServerBehindADoor:
    @pytest.fixture
    async def box(self, docker_backend, base_image, app):
        async with docker_backend.open(SandboxSpec(base_image, doors={"app": app.server})) as box:
            yield box

    async def test_a_hundred_megabytes_cost_a_fixed_buffer(self, box, app):
        before = _resident_mb()
        assert await ask(box, 100_000_000) == "POST /path 100000000\n"
        assert _resident_mb() - before < 16

    async def test_a_hundred_connections_that_are_kept_alive_are_served(self, box, app):
        script = f"""
import http.client, concurrent.futures
def twice(n):
    c = http.client.HTTPConnection("{box.door("app")}", timeout=60)
    answers = []
    for _ in range(2):
        c.request("POST", f"/{{n}}", b"abc")
        answers.append(c.getresponse().read().decode() == f"POST /{{n}} 3")
    c.close()
    return all(answers)
with concurrent.futures.ThreadPoolExecutor(100) as pool:
    print(sum(pool.map(twice, range(100))))
"""
        assert (await box.exec(["python3", "-c", script], timeout=100)).output == "100\n"
        assert len(app.bodies) == 200

    async def test_a_client_that_does_not_read_costs_a_fixed_buffer(self, box, app):
        host, port = box.door("app").split(":")
        script = f"""
import socket, time
s = socket.create_connection(("{host}", {port}))
s.sendall(b"GET /flood HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
time.sleep(60)
"""
        before = _resident_mb()
        assert (await box.exec(["python3", "-c", script], timeout=2)).timed_out
        assert _resident_mb() - before < 8
        assert int((await box.exec("grep VmHWM /proc/1/status")).output.split()[1]) < 4000  # kB

    async def test_it_leads_nowhere_else(self, box, app):
        host, port = box.door("app").split(":")
        script = f"""
import socket
s = socket.create_connection(("{host}", {port}), 10)
s.sendall(b"CONNECT 127.0.0.1:22 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
print(s.recv(1000).split(b"\\r\\n")[0].decode())
try:
    socket.create_connection(("{host}", {port} + 1), 5)
except ConnectionRefusedError:
    print("nobody")
"""
        output = (await box.exec(["python3", "-c", script])).output
        assert "nobody" in output and "SSH" not in output


@pytest.mark.docker
class TestOtherWays:
    async def test_a_client_that_asks_the_proxy_reaches_it_too(self, docker_backend, base_image, app):
        spec = SandboxSpec(base_image, limits=Limits(allowed_hosts=("*.invalid",)), doors={"app": app.server})
        async with docker_backend.open(spec) as box:
            assert await ask(box) == "POST /path 3\n"
            assert await ask(box, env={"no_proxy": "", "NO_PROXY": ""}) == "POST /path 3\n"
            other = _GET.replace("ADDRESS", "127.0.0.1:9").replace("SIZE", "3")
            refused = await box.exec(["python3", "-c", other], env={"no_proxy": "", "NO_PROXY": ""})
            assert "403" in refused.output

    async def test_a_warm_sandbox_gets_the_doors_of_whoever_takes_it(self, base_image):
        async with DockerBackend(pool=PoolLimits(each=1)) as backend:
            backend.prepare(SandboxSpec(base_image), 1)
            while not backend.ready(SandboxSpec(base_image)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            app = App()
            async with backend.open(SandboxSpec(base_image, doors={"app": app.server})) as box:
                assert await ask(box) == "POST /path 3\n"
                await box.reset()
                assert await ask(box, 4) == "POST /path 4\n"
                async with box.fork(1) as (branch,):
                    assert await ask(branch, 5) == "POST /path 5\n"
            await app.server.shutdown(1)


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
