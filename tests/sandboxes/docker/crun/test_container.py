"""How a container of crun's ends, and what is told of it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from waiting import until

from sandboxes.base import Limits, SandboxDied, SandboxEnded, SandboxSpec
from sandboxes.docker.crun import container

pytestmark = pytest.mark.docker


async def test_what_was_killed_from_outside_is_no_ones_doing_inside(crun_box):
    running = asyncio.create_task(crun_box.exec("sleep 60"))
    await asyncio.sleep(0.2)
    os.kill(crun_box.container.bundle.process.first, signal.SIGKILL)
    with pytest.raises(SandboxDied):
        await running
    assert await crun_box.overran() is None


async def test_what_ends_at_a_limit_is_told_by_how_it_ended(crun_box, monkeypatch):
    monkeypatch.setitem(container._ENDS, 137, "executor")  # nothing else from outside ends it
    os.kill(crun_box.container.bundle.process.first, signal.SIGKILL)
    with pytest.raises(SandboxDied) as caught:
        await crun_box.exec("true")
    assert getattr(caught.value, "limit", None) == "executor"


@pytest.mark.skipif(not Path("/dev/kmsg").exists(), reason="the kernel's log can't be read here")
async def test_where_the_memory_killer_takes_the_executor_that_is_told(crun_backend, base_image):
    """What is in memory for no process stays there when all commands are killed."""
    async with crun_backend.open(SandboxSpec(base_image, limits=Limits(memory_mb=64))) as box:
        await box.exec("for folder in /dev/shm /dev; do head -c 1G /dev/zero >$folder/full; done", timeout=20)
        with pytest.raises(SandboxEnded) as caught:
            for _ in range(10):
                await asyncio.wait_for(box.exec("true", stdin=bytes(64 * 2**20)), 20)
        assert caught.value.limit == "memory"


async def test_one_that_is_at_a_limit_and_lives_says_which(crun_backend, base_image):
    async with crun_backend.open(SandboxSpec(base_image, limits=Limits(pids=10))) as box:
        assert await box.overran() is None
        breed = "import os, time\nwhile True:\n    try: os.fork() or time.sleep(60)\n    except OSError: time.sleep(60)"
        full = asyncio.create_task(box.exec(["python3", "-c", breed], timeout=60))
        await until(box.overran)
        assert await box.overran() == "processes"
        full.cancel()
        await asyncio.gather(full, return_exceptions=True)


async def test_deleted_files_that_are_open_count(crun_box):
    before = (await crun_box.container.disk_usage()).bytes
    keep = "exec 3>file; rm file; head -c 3000000 /dev/zero >&3; sleep 60"
    running = asyncio.create_task(crun_box.exec(keep, timeout=60))

    async def seen():
        return (await crun_box.container.disk_usage()).bytes - before >= 3_000_000

    await until(seen)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_disk_limit_holds(crun_backend, base_image):
    async with crun_backend.open(SandboxSpec(base_image, limits=Limits(disk_mb=50))) as box:
        fill = "i=0; while [ $i -lt 60 ]; do head -c 10000000 /dev/zero >f$i || exit 9; i=$((i+1)); sleep 0.02; done"
        filled = await box.exec(fill, timeout=60)
        assert "disk limit of 50 MB is exceeded" in filled.output
        assert (await box.exec("rm -f f*; echo fine")).output == "fine\n"
