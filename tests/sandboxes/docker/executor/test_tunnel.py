"""Connections out of a sandbox, as frames."""

import asyncio
import errno
import struct

import pytest

from sandboxes.base import SandboxDied
from sandboxes.docker.executor.tunnel import TUNNEL, Tunnel, Tunnels

NUMBER = TUNNEL | 1
PORT = struct.pack("<I", 31280)


class Sent:
    """The frames that went to the executor."""

    def __init__(self):
        self.frames = []

    async def __call__(self, number, kind, payload):
        assert number == NUMBER
        self.frames.append((kind, payload))


@pytest.fixture
def sent():
    return Sent()


async def test_what_was_read_is_credited_when_more_is_asked_for(sent):
    tunnel = Tunnel(NUMBER, sent)
    tunnel.receive(b"O", b"head\r\n\r\nbody")
    assert await tunnel.read_until(b"\r\n\r\n") == b"head\r\n\r\n"
    assert sent.frames == []
    assert await tunnel.read() == b"body"
    assert sent.frames == [(b"G", struct.pack("<I", 8))]
    tunnel.receive(b"Z", b"")
    assert await tunnel.read() == b""


async def test_nobody_is_more_than_a_window_ahead(sent):
    tunnel = Tunnel(NUMBER, sent)
    writing = asyncio.create_task(tunnel.write(b"x" * 200_000))
    await asyncio.sleep(0.01)
    assert not writing.done()
    assert sum(len(payload) for _, payload in sent.frames) == 128 << 10
    tunnel.receive(b"G", struct.pack("<I", 100_000))
    await asyncio.wait_for(writing, 120)
    assert sum(len(payload) for _, payload in sent.frames) == 200_000


async def test_a_hostile_executor_fills_no_memory(sent):
    tunnel = Tunnel(NUMBER, sent)
    for _ in range(100):
        tunnel.receive(b"O", b"x" * 100_000)
    assert len(tunnel._incoming._buffer) <= 300_000


async def test_a_served_connection_is_closed_in_the_end(sent):
    async def echo(tunnel, port):
        await tunnel.write(await tunnel.read() + str(port).encode())

    tunnels = Tunnels(echo)
    tunnels.receive(NUMBER, b"A", PORT, sent)
    tunnels.receive(NUMBER, b"O", b"hello", sent)
    await asyncio.sleep(0.01)
    assert sent.frames == [(b"D", b"hello31280"), (b"K", b"")]
    tunnels.receive(NUMBER, b"O", b"late", sent)


@pytest.mark.parametrize("how", ["its client is gone", "the sandbox has ended"])
async def test_one_that_is_cut_off_is_not_served_on(sent, how):
    ended = asyncio.Event()

    async def serve(tunnel, _port):
        try:
            await tunnel.read()
        finally:
            ended.set()

    tunnels = Tunnels(serve)
    tunnels.receive(NUMBER, b"A", PORT, sent)
    await asyncio.sleep(0.01)
    if how == "its client is gone":
        tunnels.receive(NUMBER, b"Y", b"", sent)
    else:
        tunnels.end(SandboxDied("it has ended"))
    await asyncio.wait_for(ended.wait(), 5)


OURS = TUNNEL | 1 << 30


class Inside:
    """Answers what is to be connected to, and then says something. error: refused with that."""

    def __init__(self, tunnels, *says, error=0):
        self.tunnels, self.says, self.error = tunnels, says, error
        self.frames = []

    async def __call__(self, number, kind, payload):
        self.frames.append((number, kind, payload))
        if kind == b"J":
            self.tunnels.receive(number, b"F", struct.pack("<I", self.error), self)
            for said in self.says:
                self.tunnels.receive(number, *said, self)


async def nobody(*_):
    raise AssertionError("nothing connects from inside")


async def test_one_that_is_opened_here_is_served_and_closed_in_the_end():
    async def ask(tunnel):
        received.append(await tunnel.read())
        await tunnel.write_eof()

    received = []
    tunnels = Tunnels(nobody)
    inside = Inside(tunnels, (b"O", b"welcome"))
    await (await tunnels.open(PORT, inside, ask))
    assert received == [b"welcome"]
    assert inside.frames == [(OURS, b"J", PORT), (OURS, b"Z", b""), (OURS, b"K", b"")]


async def test_one_that_is_refused_is_an_os_error_and_gives_its_place_back():
    tunnels = Tunnels(nobody)
    for _ in range(100):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.wait_for(tunnels.open(PORT, Inside(tunnels, error=errno.ECONNREFUSED), nobody), 5)


async def test_one_whose_server_hangs_up_before_it_is_served_gives_its_place_back():
    tunnels = Tunnels(nobody)
    for _ in range(100):
        serving = await asyncio.wait_for(tunnels.open(PORT, Inside(tunnels, (b"Y", b"")), nobody), 5)
        await asyncio.wait({serving})
        assert serving.cancelled()


async def test_one_that_is_being_opened_when_the_sandbox_ends_says_so():
    async def say_nothing(*_):
        return

    tunnels = Tunnels(nobody)
    opening = asyncio.create_task(tunnels.open(PORT, say_nothing, nobody))
    await asyncio.sleep(0.01)
    tunnels.end(SandboxDied("it has ended"))
    with pytest.raises(SandboxDied):
        await opening


async def test_one_that_waits_for_its_turn_is_never_opened_in_the_sandboxs_next_life():
    async def stay(tunnel):
        await tunnel.read()

    tunnels = Tunnels(nobody)
    inside = Inside(tunnels)
    for _ in range(64):
        await tunnels.open(PORT, inside, stay)
    waiting = asyncio.create_task(tunnels.open(PORT, inside, stay))
    await asyncio.sleep(0.01)
    tunnels.end(SandboxDied("it was reset"))
    with pytest.raises(SandboxDied):
        await waiting
    assert [kind for _, kind, _ in inside.frames].count(b"J") == 64
    assert await asyncio.wait_for(tunnels.open(PORT, inside, stay), 5)
    tunnels.end(SandboxDied("it is over"))
