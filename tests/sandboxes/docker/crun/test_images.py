"""Images that are held as long as sandboxes are made of them."""

import inspect
from pathlib import Path

import aiodocker
import pytest

from sandboxes.base import DaemonUnavailable, ImageMissing, SandboxSpec
from sandboxes.docker.crun import images as module
from sandboxes.docker.crun.images import Image, Images
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.daemon.engine import Engine
from sandboxes.docker.daemon.reap import remove_owned
from sandboxes.docker.daemon.starter import DaemonStarter
from sandboxes.owner import PREFIX, Owner

pytestmark = pytest.mark.docker


@pytest.fixture(autouse=True)
def base_image_is_not_held(base_image, monkeypatch):
    """Undoes `isolation.held`."""
    monkeypatch.setattr(DaemonStarter, "start_holder", inspect.unwrap(DaemonStarter.start_holder))
    monkeypatch.setattr(Images, "_is_held", inspect.unwrap(Images._is_held))


async def holds(client, owner) -> list[str]:
    found = await client.containers.list(all=True, filters={"label": [f"{PREFIX}owner={owner.id}"]})
    return [container["Names"][0] for container in found]


async def images_of(client, owner) -> Images:
    engine = await Engine.of(client)
    launcher = DaemonStarter(client, owner, engine, max_starts=2, timeout_s=120, runtime=None, shortcut=True)
    return Images(client, owner, launcher, Path(engine.info["DockerRootDir"]))


async def test_an_image_is_held_once_and_let_go_of_when_others_are_newer(with_crun, base_image, monkeypatch):
    owner = Owner.of_this_process()
    async with connect() as client:
        try:
            images = await images_of(client, owner)
            first, second = await images.acquire(base_image), await images.acquire(base_image)
            assert first is second and first.users == 2
            assert first.config["Cmd"] and first.stack
            assert len(await holds(client, owner)) == 1
            monkeypatch.setattr(module, "_HELD", 0)
            await images.release(first)
            assert len(await holds(client, owner)) == 1, "one is made of it yet"
            await images.release(second)
            assert await holds(client, owner) == []
        finally:
            await remove_owned(client, owner.id)


async def test_a_daemon_that_is_away_fails_nobody_who_gives_an_image_back(monkeypatch):
    async def away(*_):
        raise DaemonUnavailable("away")

    monkeypatch.setattr(module, "_HELD", 0)
    monkeypatch.setattr(module, "remove", away)
    images, image = Images(None, Owner.of_this_process(), None, Path("/")), Image("sha256:1", {}, (), users=1)
    images._held[image.id] = image
    await images.release(image)
    assert not images._held


async def test_a_hold_that_somebody_has_removed_is_made_again(with_crun, base_image, monkeypatch):
    monkeypatch.setattr(module, "_KNOWN_S", 0.0)
    owner = Owner.of_this_process()
    async with connect() as client:
        try:
            images = await images_of(client, owner)
            image = await images.acquire(base_image)
            (name,) = await holds(client, owner)
            await client.containers.container(name.strip("/")).kill()
            assert await images.acquire(base_image) is image
            assert await holds(client, owner) == [name]
            await client.containers.container(name.strip("/")).delete(force=True)
            assert await images.acquire(base_image) is image
            assert (await client.containers.container(name.strip("/")).show())["State"]["Running"]
        finally:
            await remove_owned(client, owner.id)


async def test_a_missing_image_is_told_with_the_remedy(with_crun):
    async with connect() as client:
        with pytest.raises(ImageMissing, match="docker load"):
            await (await images_of(client, Owner.of_this_process())).acquire("no-such-image:at-all")


async def test_a_name_that_is_given_to_another_image_is_looked_up_again(crun_backend, base_image, monkeypatch):
    async with aiodocker.Docker() as daemon:
        await daemon.images.tag(base_image, "atropos-test", tag="moves")
        try:
            async with crun_backend.open(SandboxSpec("atropos-test:moves")) as box:
                await box.write_file("/new", b"1")
                container = daemon.containers.container(crun_holder(await holds(daemon, crun_backend.owner)))
                await container.commit(repository="atropos-test", tag="moves", changes="ENV NEW=1")
            monkeypatch.setattr(module, "_KNOWN_S", 0.0)
            async with crun_backend.open(SandboxSpec("atropos-test:moves")) as box:
                assert (await box.exec("echo $NEW")).output == "1\n"
        finally:
            await daemon.images.delete("atropos-test:moves", force=True)


def crun_holder(names: list[str]) -> str:
    (name,) = [name for name in names if "-holds-" in name]
    return name.strip("/")
