"""Commands that go past the Docker daemon, and what could come between."""

import asyncio
import os

import pytest

from sandboxes.base import SandboxDied, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon.stream import AttachedStream
from sandboxes.docker.executor.streams import SocketStream

pytestmark = [pytest.mark.docker]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gets into a container's files through /proc")

THIEF = """
import os, socket, time
while True:
    for name in os.listdir("/dev/shm"):
        try:
            thief = socket.socket(socket.AF_UNIX)
            thief.connect("/dev/shm/" + name)
            open("/tmp/heard", "ab").write(b"heard %r" % thief.recv(100))
        except PermissionError:  # it is the executor's own
            open("/tmp/heard", "ab").write(b"kept out")
        except OSError:
            pass
"""


def connection_of(box):
    return box.container.channel._connection


async def offer_to_a_thief(box):
    """Have the socket offered while a process in the sandbox connects to it many times."""
    await box.write_file("/tmp/thief.py", THIEF.encode())
    await box.exec("nohup python3 /tmp/thief.py >/dev/null 2>&1 &")
    connection = connection_of(box)
    offer = connection.call()
    await connection.send(offer.number, b"U", b"/dev/shm/offered\0", connection.era)
    await connection.answer(offer, 10.0)
    await asyncio.sleep(0.5)


@pytest.fixture(params=[pytest.param(True, marks=needs_root), False], ids=["past the Docker daemon", "by way of it"])
async def box(request, base_image):
    async with (
        DockerBackend(shortcut=request.param, starter="docker") as backend,
        backend.open(SandboxSpec(base_image)) as box,
    ):
        assert isinstance(connection_of(box)._stream, SocketStream if request.param else AttachedStream)
        yield box


async def test_either_way_does_it_all(box):
    session = await box.session()
    data = os.urandom(3 * 2**20)
    _, _, much, late = await asyncio.gather(
        session.run("cd /tmp; x=5"),
        box.write_file("/tmp/data", data),
        box.exec("head -c 5000000 /dev/zero | tr '\\0' x", max_output=6_000_000),
        box.exec("echo before; sleep 60", timeout=0.5),
    )
    assert (await session.run("echo $x $PWD")).output == "5 /tmp\n"
    assert await box.read_file("/tmp/data") == data
    assert much.raw == b"x" * 5_000_000
    assert (late.timed_out, late.output) == (True, "before\n")
    assert (await box.exec("ls -A /dev/shm | grep -v session")).output == "", "the socket has no name any more"


async def test_a_sandbox_that_dies_says_so_and_costs_no_other(box):
    running = asyncio.create_task(box.exec("sleep 60"))
    await asyncio.sleep(0.2)
    await box.container.handle.kill()
    with pytest.raises(SandboxDied, match="does not run any more"):
        await running
    with pytest.raises(SandboxDied):
        await box.exec("true")


async def test_where_the_socket_is_out_of_reach_the_daemon_is_used(base_image):
    async with DockerBackend(shortcut=False, starter="docker") as backend, backend.open(SandboxSpec(base_image)) as box:
        assert not await connection_of(box).bypass_daemon(os.getpid(), 10.0), (
            "as on another machine, where ids mean others"
        )
        assert (await box.exec("ls -A /dev/shm")).output == "", "the offer is withdrawn by the next request"


@needs_root
async def test_nobody_in_the_sandbox_gets_the_socket(base_image):
    async with DockerBackend(shortcut=False, starter="docker") as backend, backend.open(SandboxSpec(base_image)) as box:
        await offer_to_a_thief(box)
        pid = (await box.container.handle.show())["State"]["Pid"]
        ours = await SocketStream.open(f"/proc/{pid}/root/dev/shm/offered")
        assert await ours.read(), "we are greeted"
        await ours.close()
        # Its owner has come and gone, and so has the container.
        assert (await box.container.handle.wait(timeout=10))["StatusCode"] == 0


@needs_root
async def test_a_thief_who_connects_in_time_hears_nothing(base_image):
    async with DockerBackend(shortcut=False, starter="docker") as backend, backend.open(SandboxSpec(base_image)) as box:
        await offer_to_a_thief(box)
        heard = (await box.exec("cat /tmp/heard")).output
        assert heard and heard.replace("heard b''", "").replace("kept out", "") == ""
