"""What is started by crun, what by the Docker daemon, and what becomes of starts that fail or are cut short."""

import asyncio

import pytest

from sandboxes.base import ImageMissing, Limits, SandboxDied, SandboxError, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.crun import starter as starting
from sandboxes.docker.crun.container import CrunContainer
from sandboxes.docker.daemon.container import DaemonContainer

pytestmark = pytest.mark.docker


async def test_a_network_is_the_docker_daemons_affair(crun_backend, base_image):
    async with crun_backend.open(SandboxSpec(base_image, limits=Limits(network=True))) as box:
        assert isinstance(box.container, DaemonContainer)
        assert "eth0" in (await box.exec("ls /sys/class/net")).output
    async with crun_backend.open(SandboxSpec(base_image)) as box:
        assert isinstance(box.container, CrunContainer)


@pytest.mark.parametrize("starter", [None, "crun"])
async def test_where_crun_cannot_start_the_first_one_the_docker_daemon_does(
    with_crun, base_image, monkeypatch, caplog, starter
):
    def unreadable(process):
        raise SandboxError("it is on another machine")

    monkeypatch.setattr(starting, "read_template", unreadable)
    async with DockerBackend(starter=starter) as backend:
        if starter == "crun":
            with pytest.raises(SandboxError, match="another machine"):
                async with backend.open(SandboxSpec(base_image)):
                    pass
            return
        async with backend.open(SandboxSpec(base_image)) as box:
            assert isinstance(box.container, DaemonContainer)
    assert "by the Docker daemon from now on" in caplog.text


async def test_a_missing_image_is_no_reason_to_give_up_crun(with_crun, base_image):
    async with DockerBackend() as backend:
        with pytest.raises(ImageMissing):
            async with backend.open(SandboxSpec("no-such-image:at-all")):
                pass
        async with backend.open(SandboxSpec(base_image)) as box:
            assert isinstance(box.container, CrunContainer)


async def test_a_missing_image_fails_no_sandbox_of_another_that_starts_beside_it(with_crun, base_image):
    async def name(backend, image):
        async with backend.open(SandboxSpec(image)) as box:
            return box.container.kind.image

    async with DockerBackend(starter="crun") as backend:
        images = ("no-such-image:at-all", base_image, base_image)
        missing, *started = await asyncio.gather(*(name(backend, one) for one in images), return_exceptions=True)
    assert isinstance(missing, ImageMissing)
    assert started == [base_image, base_image]


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.006, 0.01, 0.015, 0.02, 0.03, 0.06, 0.3])
async def test_nothing_is_left_of_a_start_that_is_cancelled(crun_backend, base_image, delay):
    async def live():
        async with crun_backend.open(SandboxSpec(base_image)) as box:
            await box.exec("sleep 60")

    async with crun_backend.open(SandboxSpec(base_image)) as box:
        home, cgroup = box.container.bundle.directory, box.container.bundle.cgroup
    task = asyncio.create_task(live())
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left = {path.name for path in home.path.iterdir()} - {"layers"}  # the images' short paths, with containerd's store
    assert left == {"cgroup", "crun", "etc", "executor", "lock"}
    above = [folder.parent for folder in cgroup.folders()]
    assert not [found for folder in above for found in folder.glob(f"atropos-{home.owner}-*")]


async def test_leaving_the_backend_ends_what_is_open(with_crun, base_image):
    backend = DockerBackend(starter="crun")
    async with backend:
        opened = backend.open(SandboxSpec(base_image))
        box = await opened.__aenter__()
        home = box.container.bundle.directory
    assert not home.path.exists()
    with pytest.raises(SandboxDied):
        await box.exec("true")
    await opened.__aexit__(None, None, None)


async def test_many_at_once_are_apart(crun_backend, base_image):
    async def use(number):
        async with crun_backend.open(SandboxSpec(base_image)) as box:
            return (await box.exec(f"echo {number}")).output

    assert await asyncio.gather(*(use(number) for number in range(32))) == [f"{number}\n" for number in range(32)]
