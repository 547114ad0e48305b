"""2,000 sandboxes in waves of 64 (`--soak` for another number), some killed, timed out, attacked from inside or reset:
nothing of them is left, nothing grows, and no attack is a failure of ours."""

import asyncio
import os
import random
import signal
import threading
import time
from pathlib import Path

import aiodocker
import pytest
from attacks import IN_A_FRESH_SHELL
from crun_leftovers import gone
from stopwatch import Stopwatch

from sandboxes.base import Limits, SandboxDied, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.owner import PREFIX

WAVE = 64


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def live(backend: DockerBackend, spec: SandboxSpec, fate: float) -> str:
    async with backend.open(spec) as box:
        shell = await box.session()
        assert (await shell.run("x=5; cd /tmp")).ok
        assert (await box.exec("echo $((6 * 7))")).output == "42\n"
        if fate < 0.05:
            os.kill(box.container.host_paths.process, signal.SIGKILL)
            with pytest.raises(SandboxDied):
                await box.exec("true")
            return "killed"
        if fate < 0.10:
            assert (await shell.run("(setsid sleep 9999 &); sleep 60", timeout=0.2)).timed_out
            assert (await shell.run("echo $x; pwd")).output == "5\n/tmp\n"
            return "timed out"
        if fate < 0.15:
            watch = Stopwatch()
            attack = list(IN_A_FRESH_SHELL.values())[int(fate * 10_000) % len(IN_A_FRESH_SHELL)]
            await asyncio.gather(box.exec(attack, timeout=1.0), shell.run("(kill -STOP $$) & sleep 60", timeout=1.0))
            for _ in range(5):
                await shell.run("true", timeout=1.0)
            # A limit and 2 s each, with 64 beside it.
            assert watch.seconds < 10 * 6 * (1 + 2)
            return "attacked"
        if fate < 0.25:
            await box.exec("(setsid sleep 9999 &); echo left | tee /app/left /dev/shm/left")
            await box.reset()
            assert (await box.exec("ls -A . /dev/shm; set -- /proc/[0-9]*; echo $#")).output == ".:\n\n/dev/shm:\n3\n"
            return "reset"
        await box.write_file("file", b"x" * 10_000)
        assert len(await box.read_file("file")) == 10_000
        return "used"


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("starter", ["docker", "crun"])
async def test_a_soak_leaves_nothing(base_image, capsys, starter, request):
    count = request.config.getoption("--soak")
    most = min(WAVE, -(-count // 4))
    rng = random.Random(0)
    fates: list[str] = []
    sizes: list[tuple[int, int, float]] = []
    start = time.monotonic()
    spec = SandboxSpec(base_image, workdir="/app", limits=Limits(cpus=2.0))
    async with aiodocker.Docker() as daemon:
        storage = Path((await daemon.system.info())["DockerRootDir"])
        async with DockerBackend(starter=starter) as backend:
            filters = {"label": [f"{PREFIX}owner={backend.owner.id}"], "status": ["running"]}
            while len(fates) < count:
                wave = min(most, count - len(fates))
                fates += await asyncio.gather(*(live(backend, spec, rng.random()) for _ in range(wave)))
                async with asyncio.timeout(120):  # what a reset has replaced is removed beside what goes on
                    while await daemon.containers.list(all=True, filters=filters):  # noqa: ASYNC110 - the daemon tells no one
                        await asyncio.sleep(0.1)
                sizes.append((descriptors(), threading.active_count(), resident_mb()))
        assert await daemon.containers.list(all=True, filters=filters) == []
        assert await gone(backend.owner.id, storage) == []
    counts = {fate: fates.count(fate) for fate in sorted(set(fates))}
    with capsys.disabled():
        print(f"\n{counts} in {time.monotonic() - start:.0f} s; descriptors, threads, MB after the first wave,")
        print(f"half of them, and the last: {sizes[0]} {sizes[len(sizes) // 2]} {sizes[-1]}")
    # The first waves fill pools and caches; memory is as large as the fullest of them a third of the way on.
    half = sizes[len(sizes) // 2]
    assert sizes[-1][0] <= half[0] + 5
    assert sizes[-1][1] <= half[1] + 2
    assert sizes[-1][2] <= half[2] + 10
