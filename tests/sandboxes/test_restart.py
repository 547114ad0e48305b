"""A Docker daemon that is ended and started while sandboxes live."""

import asyncio
import signal

import pytest

from sandboxes.base import DaemonRestarted, SandboxSpec
from sandboxes.docker import DockerBackend

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_sandboxes_that_survive_a_restart_are_used_on(own_daemon, base_image, number):
    async with DockerBackend(url=own_daemon.url, shortcut=False, starter="docker") as backend:
        async with backend.open(SandboxSpec(base_image)) as box:
            shell = await box.session()
            await shell.run("x=5; cd /tmp; sleep 7654 & ")
            running = asyncio.create_task(box.exec("sleep 60"))
            await asyncio.sleep(0.3)
            await own_daemon.end(number)
            during = asyncio.create_task(box.exec("echo during"))
            await asyncio.sleep(0.5)
            await own_daemon.start()
            with pytest.raises(DaemonRestarted):
                await running
            assert (await during).output == "during\n"
            assert (await shell.run("echo $x; pwd; jobs | wc -l")).output == "5\n/tmp\n1\n"
            assert (await box.exec("ps ax | grep -c '[s]leep 60'")).output == "0\n"
        async with backend.open(SandboxSpec(base_image)) as box:
            assert (await box.exec("echo fine")).output == "fine\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_past_the_daemon_its_restart_is_not_even_noticed(own_daemon, base_image, number):
    async with (
        DockerBackend(url=own_daemon.url, starter="docker") as backend,
        backend.open(SandboxSpec(base_image)) as box,
    ):
        running = asyncio.create_task(box.exec("sleep 2; echo whole"))
        await asyncio.sleep(0.3)
        await own_daemon.end(number)
        assert (await box.exec("echo during")).output == "during\n"
        await own_daemon.start()
        assert (await running).output == "whole\n"
