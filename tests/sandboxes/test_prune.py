"""Images and containers that somebody removes while sandboxes are made of them."""

import asyncio

import pytest
from turns import one_of

from sandboxes.base import SandboxDied, SandboxSpec
from sandboxes.docker import DockerBackend

pytestmark = pytest.mark.docker


async def docker(daemon, *arguments):
    process = await asyncio.create_subprocess_exec(
        *("docker", "-H", daemon.url, *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    return (await process.communicate())[0].decode()


@pytest.fixture(params=one_of(["crun", "docker"]))
async def backend(own_daemon, request):
    async with DockerBackend(url=own_daemon.url, starter=request.param, makes_base=False) as backend:
        yield backend


async def test_what_is_made_of_an_image_outlasts_its_pruning(backend, own_daemon, base_image):
    async with backend.open(SandboxSpec(base_image, workdir="/app")) as box:
        await box.write_file("made", b"1")
        for way in (("system", "prune", "-af"), ("container", "prune", "-f"), ("rmi", "-f", base_image)):
            await docker(own_daemon, *way)
            assert (await box.exec("cat made && ls /usr/lib/python3 && git --version")).ok, way
        await docker(own_daemon, "image", "prune", "-af")
        assert (await box.exec("cat made && ls /usr/lib/python3")).ok
        assert await box.download("/app")


async def test_nothing_is_believed_of_a_sandbox_whose_image_is_gone(backend, own_daemon, base_image):
    async with backend.open(SandboxSpec(base_image, workdir="/app")) as box:
        session = await box.session()
        running = asyncio.create_task(box.exec("sleep 3; cat /etc/passwd"))
        await asyncio.sleep(0.3)
        await docker(own_daemon, "rm", "-f", *(await docker(own_daemon, "ps", "-aq")).split())
        await docker(own_daemon, "system", "prune", "-af")
        for doing in (
            running,
            box.exec("true"),
            session.run("true"),
            box.read_file("/etc/passwd"),
            box.download("/app"),
            box.download("/no/such/folder"),
        ):
            with pytest.raises(SandboxDied):
                await doing


async def test_an_image_that_is_brought_back_is_used_at_once(backend, own_daemon, base_image):
    async with backend.open(SandboxSpec(base_image)):
        pass
    await docker(own_daemon, "rm", "-f", *(await docker(own_daemon, "ps", "-aq")).split(), "none")
    await docker(own_daemon, "system", "prune", "-af")
    await own_daemon.load()  # the same id, and other folders
    async with backend.open(SandboxSpec(base_image)) as box:
        assert (await box.exec("git --version")).ok
        await docker(own_daemon, "system", "prune", "-af")
        assert (await box.exec("git --version")).ok
