"""The one stream of a sandbox."""

import asyncio

import pytest
from waiting import until

from sandboxes.base import DaemonRestarted, SandboxDied, SandboxEnded
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


async def test_a_container_that_was_started_again_without_its_files_is_no_sandbox(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        await box.write_file("/app/kept", b"1")
        await server.start_again(box.id)
        with pytest.raises(SandboxDied, match="process 1 has ended: Error, exit code 65") as caught:
            await asyncio.wait_for(box.exec("touch /app/again"), 60)
        assert not isinstance(caught.value, SandboxEnded)
