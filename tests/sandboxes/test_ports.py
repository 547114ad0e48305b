"""What every backend must do with connections from outside to servers in the sandbox."""

import asyncio
import random
from contextlib import asynccontextmanager, suppress

import pytest
from memory import resident_mb

from sandboxes.base import SandboxDied

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.any_starter]

SERVER = """
import socket, sys, threading, time

def echo(s):
    while data := s.recv(65536):
        s.sendall(data)
    s.sendall(b"bye")

def one_gigabyte(s):
    for _ in range(1000):
        s.sendall(bytes(1000000))

def never(s):
    time.sleep(600)

def close(s):
    pass

def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0\\0\\0\\0\\0")

def serve(s, work):
    with s:
        try:
            work(s)
        except OSError:
            pass

work, where = globals()[sys.argv[1]], sys.argv[2]
family = {"6": socket.AF_INET6, "4": socket.AF_INET}.get(where, socket.AF_UNIX)
address = where if family == socket.AF_UNIX else ("::1" if where == "6" else "127.0.0.1", 0)
with socket.socket(family) as listener:
    listener.bind(address)
    listener.listen(int(sys.argv[3]))
    print(listener.getsockname()[1] if family != socket.AF_UNIX else 0, flush=True)
    while sys.argv[4] == "accepts":
        threading.Thread(target=serve, args=(listener.accept()[0], work), daemon=True).start()
    time.sleep(600)
"""


@pytest.fixture
def box(kept_box):
    return kept_box


async def need_python(box):
    if not (await box.exec("command -v python3")).ok:
        pytest.skip("this image has no python3 to serve with")


@asynccontextmanager
async def serving(box, work: str, where: str = "4", backlog: int = 128, accepts: str = "accepts"):
    """A server inside. Yields its port."""
    await need_python(box)
    async with box.start(["python3", "-c", SERVER, work, where, str(backlog), accepts]) as process:
        line = await process.stdout.readline()
        assert line, await process.wait()
        yield int(line)


@pytest.mark.parametrize("where", ["4", "6"])
async def test_a_server_inside_is_reached_by_its_port(box, where):
    async with serving(box, "echo", where) as port, box.connect(port) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()
        assert await reader.read() == b"bye"


async def test_or_by_its_sockets_path(box):
    async with serving(box, "echo", "s"), box.connect("s") as (reader, writer):
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"hellobye"
    async with serving(box, "echo", "t"), box.connect(f"{box.workdir}/t") as (_, writer):
        writer.write(b"hello")


async def test_megabytes_go_both_ways(box):
    data = random.randbytes(3_000_000)

    async def feed():
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    async with serving(box, "echo") as port, box.connect(port) as (reader, writer):
        feeding = asyncio.create_task(feed())
        assert await reader.read() == data + b"bye"
        await feeding


async def test_what_was_written_arrives_though_the_block_has_ended(box):
    keep = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    s, _ = listener.accept()
    time.sleep(0.5)
    print(sum(iter(lambda: len(s.recv(65536)), 0)), flush=True)
"""
    async with box.start(["python3", "-c", keep]) as process:
        async with box.connect(int(await process.stdout.readline())) as (_, writer):
            writer.write(bytes(1_000_000))
        assert await process.stdout.readline() == b"1000000\n"


async def test_a_port_where_nobody_listens_refuses(box):
    for target, error in ((1, ConnectionRefusedError), ("nothing", FileNotFoundError)):
        with pytest.raises(error):
            async with box.connect(target):
                pass
    await box.write_file("plain", b"")
    with pytest.raises(ConnectionRefusedError):
        async with box.connect("plain"):
            pass
    for port in (0, -1, 65536):
        with pytest.raises(ValueError, match="65535"):
            async with box.connect(port):
                pass


@pytest.mark.parametrize("where", ["4", "s"])
async def test_a_server_that_accepts_nothing_holds_us_up_for_the_limit_alone(box, where):
    async with serving(box, "never", where, backlog=0, accepts="never") as port:
        target = port if where == "4" else where
        for _ in range(4):  # its queue takes some
            try:
                async with box.connect(target, timeout=0.5):
                    pass
            except TimeoutError:
                break
        else:
            raise AssertionError("it always connected")
    assert (await box.exec("echo fine")).output == "fine\n"


@pytest.mark.parametrize(("work", "end"), [("close", b""), ("reset", None)])
async def test_a_server_that_hangs_up_is_noticed(box, work, end):
    async with serving(box, work) as port:
        for _ in range(20):
            try:
                async with box.connect(port) as (reader, _):
                    assert await asyncio.wait_for(reader.read(), 20) == b""
            except ConnectionResetError:
                assert end is None


async def test_a_gigabyte_costs_us_a_fixed_buffer(box):
    async with serving(box, "one_gigabyte") as port, box.connect(port) as (reader, _):
        await reader.read(1)
        before = resident_mb()
        await asyncio.sleep(0.5)
        taken = 1
        while taken < 30_000_000:
            taken += len(await reader.read(65536))
        assert resident_mb() - before < 8


async def test_a_server_that_never_reads_holds_the_writer_up_alone(box):
    async with serving(box, "never") as port, box.connect(port) as (_, writer):
        writer.write(bytes(30_000_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 1)
        assert (await box.exec("echo fine")).output == "fine\n"
        writer.transport.abort()


async def test_thousands_of_connections_come_and_go(box):
    async def ask(number):
        async with turn, box.connect(port, timeout=60) as (reader, writer):
            writer.write(str(number).encode())
            writer.write_eof()
            assert await reader.read() == f"{number}bye".encode()

    turn = asyncio.Semaphore(200)  # more than are served at a time
    async with serving(box, "echo") as port:
        await asyncio.gather(*(ask(number) for number in range(2000)))
    assert (await box.exec("echo fine")).output == "fine\n"


async def test_one_that_is_cancelled_gives_its_place_back(box):
    async with serving(box, "never", backlog=0, accepts="never") as port:

        async def connect():
            async with box.connect(port, timeout=60):
                await asyncio.sleep(60)

        for _ in range(3):
            tasks = [asyncio.create_task(connect()) for _ in range(70)]
            await asyncio.sleep(0.2)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    async with serving(box, "echo") as port, box.connect(port) as (reader, writer):
        writer.write_eof()
        assert await reader.read() == b"bye"


async def test_a_sandbox_that_is_stopped_ends_its_connections(box):
    async with serving(box, "never") as port, box.connect(port) as (reader, _):
        reading = asyncio.create_task(reader.read())
        await asyncio.sleep(0.1)
        await box.stop()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reading, 120) == b""
        with pytest.raises(SandboxDied):
            async with box.connect(port):
                pass


async def test_with_a_reset_connections_are_gone_and_new_ones_work(backend_beside, spec):
    async with backend_beside.open(spec) as box:
        await need_python(box)
        async with box.start(["python3", "-c", SERVER, "never", "4", "9", "accepts"]) as process:
            port = int(await process.stdout.readline())
            async with box.connect(port) as (reader, _):
                await box.reset()
                with suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), 20) == b""
        async with serving(box, "echo") as port, box.connect(port) as (reader, writer):
            writer.write_eof()
            assert await reader.read() == b"bye"
