"""The one stream of a sandbox."""

import asyncio

import pytest

from sandboxes.base import (
    DaemonRestarted,
)

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
