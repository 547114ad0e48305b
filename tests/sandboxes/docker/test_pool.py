"""Containers that stand ready before they are asked for."""

import asyncio
from collections import deque
from pathlib import Path

import aiodocker
import pytest

from sandboxes.base import Limits, SandboxSpec
from sandboxes.docker import DockerBackend, PoolLimits
from sandboxes.docker.crun.spares import Spares
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.pool import WarmPool
from sandboxes.owner import PREFIX


@pytest.fixture
async def pooled(base_image):
    async with DockerBackend(pool=PoolLimits(each=1, total=3, free_disk_mb=100), starter="docker") as backend:
        yield backend


async def until_ready(backend: DockerBackend, spec: SandboxSpec, count: int) -> None:
    for _ in range(300):
        if backend.ready(spec) >= count:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"the pool did not get {count} sandboxes ready")


def names(backend: DockerBackend) -> set[str]:
    return {container.name for container in backend._sandboxes.pool.containers()}


@pytest.mark.docker
class TestWarmPool:
    async def test_what_was_prepared_is_had_at_once(self, pooled, base_image):
        spec = SandboxSpec(base_image, workdir="/app", env={"COLOUR": "green"})
        pooled.prepare(spec, 2)
        await until_ready(pooled, spec, 2)
        standing = names(pooled)
        async with pooled.open(spec) as box:
            assert box.id in standing
            assert (await box.exec("pwd; echo $COLOUR")).output == "/app\ngreen\n"

    async def test_one_kind_serves_every_user_directory_and_environment(self, pooled, base_image):
        spec = SandboxSpec(base_image)
        pooled.prepare(spec, 1)
        await until_ready(pooled, spec, 1)
        other = SandboxSpec(base_image, workdir="/new/place", env={"A": "b"}, user="nobody")
        async with pooled.open(other) as box:
            assert (await box.exec("pwd; echo $A; id -un")).output == "/new/place\nb\nnobody\n"

    async def test_other_limits_are_another_kind(self, pooled, base_image):
        spec = SandboxSpec(base_image)
        pooled.prepare(spec, 1)
        await until_ready(pooled, spec, 1)
        async with pooled.open(SandboxSpec(base_image, limits=Limits(memory_mb=77))) as box:
            limit = (await box.exec("cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max")).output
            assert str(77 * 2**20) in limit

    async def test_its_place_is_filled_again(self, pooled, base_image):
        spec = SandboxSpec(base_image)
        async with pooled.open(spec):
            await until_ready(pooled, spec, 1)
            async with pooled.open(spec):
                await until_ready(pooled, spec, 1)

    async def test_one_that_died_in_the_pool_is_not_handed_out(self, pooled, base_image):
        spec = SandboxSpec(base_image)
        pooled.prepare(spec, 1)
        await until_ready(pooled, spec, 1)
        (container,) = pooled._sandboxes.pool.containers()
        async with aiodocker.Docker() as daemon:
            await daemon.containers.container(container.name).kill()
        async with pooled.open(spec) as box:
            assert box.id != container.name
            assert (await box.exec("echo fine")).output == "fine\n"

    async def test_the_total_is_bounded(self, pooled, base_image):
        one, two = SandboxSpec(base_image), SandboxSpec(base_image, limits=Limits(pids=99))
        pooled.prepare(one, 3)
        await until_ready(pooled, one, 3)
        pooled.prepare(two, 2)
        await until_ready(pooled, two, 2)
        assert len(pooled._sandboxes.pool.containers()) <= 3

    async def test_none_is_left_when_the_backend_is_left(self, base_image):
        async with DockerBackend(pool=PoolLimits(each=2), starter="docker") as backend:
            backend.prepare(SandboxSpec(base_image), 4)
            await asyncio.sleep(0.5)  # some ready, some starting
        async with aiodocker.Docker() as daemon:
            filters = {"label": [f"{PREFIX}owner={backend.owner.id}"]}
            assert await daemon.containers.list(all=True, filters=filters) == []

    async def test_a_reset_takes_one_from_the_pool(self, pooled, base_image):
        spec = SandboxSpec(base_image, workdir="/app")
        pooled.prepare(spec, 2)
        await until_ready(pooled, spec, 2)
        async with pooled.open(spec) as box:
            await until_ready(pooled, spec, 1)
            await box.write_file("made", b"1")
            standing = names(pooled)
            await box.reset()
            assert box.id in standing
            assert (await box.exec("ls -A")).output == ""


class Silent:
    """A container that does not answer for now."""

    name, kind, made_of, discarded = "silent", "kind", "image", False

    async def is_responsive(self):
        await asyncio.Event().wait()

    async def discard(self):
        self.discarded = True


@pytest.mark.parametrize("spare", [False, True])
async def test_a_caller_that_is_cancelled_while_a_container_is_tried_leaves_none(spare):
    container, loop = Silent(), asyncio.get_running_loop()
    if spare:
        spares = Spares(PoolLimits(), Path("/"))
        spares._ready[container] = loop.call_later(60.0, print)
        taking = asyncio.create_task(spares.take("kind", "image"))
    else:
        pool = WarmPool(None, PoolLimits(), None)
        pool.prepare("kind", 1)
        pool._idle["kind"] = deque([container])
        taking = asyncio.create_task(pool.take("kind"))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert container.discarded


class OutOfDescriptors:
    """A starter that fails at first, by an error of this process's."""

    busy, tries = False, 0

    async def launch(self, kind):
        self.tries += 1
        if self.tries <= 4:
            raise OSError(24, "Too many open files")
        return Silent()


@pytest.mark.timeout(10)
async def test_the_pool_outlives_errors_of_this_process():
    kind = Kind("image", Limits(), switch_users=False)
    async with WarmPool(OutOfDescriptors(), PoolLimits(free_memory_mb=0), None) as pool:
        while not pool.ready(kind):
            pool.prepare(kind, 1)
            await asyncio.sleep(0.01)
