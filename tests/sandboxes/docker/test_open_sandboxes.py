"""The running sandboxes of one backend; reset and fork of either backend are tested in test_lifecycle.py."""

import asyncio

import aiodocker
import pytest

from sandboxes.base import SandboxDied, SandboxError
from sandboxes.owner import PREFIX


@pytest.mark.docker
class TestForksOfContainers:
    async def test_nothing_is_left_of_them(self, docker_backend, docker_box):
        async with docker_box.fork(2):
            pass
        async with aiodocker.Docker() as daemon:
            filters = {"label": [f"{PREFIX}owner={docker_backend.owner.id}"]}
            images = await daemon._query_json("images/json", params={"filters": aiodocker.utils.clean_filters(filters)})
            assert images == []
            assert len(await daemon.containers.list(all=True, filters=filters)) == 1

    async def test_a_fork_of_a_dead_sandbox_raises(self, docker_box):
        async with aiodocker.Docker() as daemon:
            await daemon.containers.container(docker_box.id).delete(force=True)
        with pytest.raises(SandboxDied):
            async with docker_box.fork(1):
                pass


@pytest.mark.docker
async def test_a_reset_takes_another_machine_and_the_old_one_goes(docker_backend, docker_box):
    before = docker_box.container
    await docker_box.reset()
    assert docker_box.container is not before
    async with aiodocker.Docker() as daemon:
        for _ in range(100):
            try:
                await daemon.containers.get(before.name)
            except aiodocker.DockerError as error:
                assert error.status == 404
                return
            await asyncio.sleep(0.1)
    pytest.fail("the old container is still there")


@pytest.mark.docker
async def test_where_one_fork_cannot_be_opened_none_is_left(docker_backend, docker_box, monkeypatch):
    running = docker_backend._sandboxes
    launch, tries = running.starter.launch, []

    async def failing(kind):
        tries.append(kind)
        if len(tries) == 2:
            raise SandboxError("no room")
        return await launch(kind)

    monkeypatch.setattr(running.starter, "launch", failing)
    with pytest.raises(SandboxError, match="no room"):
        async with docker_box.fork(3):
            pytest.fail("opened")
    assert running._containers == {docker_box.container}
