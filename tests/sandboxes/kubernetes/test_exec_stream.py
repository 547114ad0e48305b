"""The one stream of a sandbox."""

import asyncio
import logging

import pytest
from waiting import until

from sandboxes.base import DaemonRestarted, SandboxDied, SandboxEnded, SandboxUnreachable
from sandboxes.kubernetes.exec_stream import ExecStream

pytestmark = pytest.mark.docker


async def test_a_cut_stream_is_taken_up_again_and_nothing_runs_twice(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        session = await box.session()
        await session.run("export KEPT=1")
        running = asyncio.create_task(box.exec("echo x >> /app/times; sleep 60"))
        await box.exec("until test -s /app/times; do sleep 0.05; done")
        await server.cut()
        with pytest.raises(DaemonRestarted, match="the cluster of sandbox"):
            await running
        assert (await box.exec("cat /app/times")).output == "x\n"
        assert (await session.run("echo $KEPT")).output == "1\n"


async def test_a_stream_that_is_cut_before_the_executor_has_its_token_is_taken_up_again(
    make, server, spec, monkeypatch
):
    write, lost = ExecStream.write, []

    async def lose_the_first(stream, data):
        if lost:
            await write(stream, data)
            return
        lost.append(data)
        cut = set(server.streams)
        await server.cut()
        await until(lambda: set(server.streams) - cut)

    monkeypatch.setattr(ExecStream, "write", lose_the_first)
    async with make() as backend, backend.open(spec) as box:
        assert (await box.exec("echo $((6 * 7))")).output == "42\n"
    assert lost


async def test_a_cluster_that_stays_away_ends_the_sandbox(make, server, spec):
    async with make(outage_timeout_s=1) as backend, backend.open(spec) as box:
        running = asyncio.create_task(box.exec("sleep 60"))
        assert (await box.exec("true")).ok
        server.refusals += [("GET", "/pods/", 503, "unavailable")] * 1000
        await server.cut()
        with pytest.raises(SandboxDied, match=r"its cluster does not answer: .*unavailable"):
            await asyncio.wait_for(running, 20)
        server.refusals.clear()


_DIALING = "error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused"


def refuse(server):
    server.refusals += [("GET", "/exec", 500, _DIALING)] * 1000


def answer_by_stream(server):
    server.node_away = _DIALING


@pytest.mark.parametrize("be_away", [refuse, answer_by_stream])
async def test_a_node_that_the_api_server_cannot_reach_is_named_once_and_is_a_failure_of_its_own(
    make, server, spec, monkeypatch, caplog, be_away
):
    monkeypatch.setattr("sandboxes.remote.api._MOMENT_S", 0.5)
    async with make(outage_timeout_s=3) as backend, backend.open(spec) as box, backend.open(spec) as other:
        running = [asyncio.create_task(one.exec("sleep 60")) for one in (box, other)]
        await asyncio.gather(box.exec("true"), other.exec("true"))
        be_away(server)
        await server.cut()
        for one in running:
            with pytest.raises(SandboxUnreachable, match="error dialing backend"):
                await asyncio.wait_for(one, 20)
        [told] = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert told.startswith("The API server has been failing for a while, and is asked again: ")
        assert _DIALING in told


async def test_a_tree_is_read_after_the_node_was_away(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        await box.write_file("a", b"1")
        server.node_away = _DIALING
        reading = asyncio.create_task(box.download("/app"))
        await asyncio.sleep(1)
        assert not reading.done()
        server.node_away = ""
        assert await asyncio.wait_for(reading, 30)


async def test_a_container_that_was_started_again_without_its_files_is_no_sandbox(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        await box.write_file("/app/kept", b"1")
        await server.start_again(box.id)
        with pytest.raises(SandboxDied, match="process 1 has ended: Error, exit code 65") as caught:
            await asyncio.wait_for(box.exec("touch /app/again"), 60)
        assert not isinstance(caught.value, SandboxEnded)
