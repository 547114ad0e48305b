"""The one stream of a sandbox."""

import asyncio

import pytest
from waiting import until

from sandboxes.base import DaemonRestarted
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
