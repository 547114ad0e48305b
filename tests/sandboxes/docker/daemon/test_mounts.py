"""Folders of this machine in containers."""

import pytest

from sandboxes.base import NotSupported, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon.starter import Kind
from sandboxes.local import LocalBackend


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "tools-0123456789abcdef"
    folder.mkdir()
    (folder / "run").write_text("#!/bin/sh\necho works\n")
    (folder / "run").chmod(0o755)
    return folder


async def check(backend, image, folder):
    async with backend.open(SandboxSpec(image, mounts={"/opt/tools": folder})) as box:
        assert (await box.exec(["/opt/tools/run"])).output == "works\n"
        assert not (await box.exec("echo x >/opt/tools/run")).ok
        assert not (await box.exec("touch /opt/tools/new; mount -o remount,rw /opt/tools")).ok
    assert (folder / "run").read_text().endswith("works\n")


@pytest.mark.docker
class TestAFolder:
    async def test_can_be_run_and_not_be_written(self, docker_backend, base_image, folder):
        await check(docker_backend, base_image, folder)
        async with docker_backend.open(SandboxSpec(base_image)) as other:
            assert not (await other.exec("ls /opt/tools")).ok

    async def test_is_sent_once_to_a_daemon_elsewhere(self, over_ssh, base_image, folder):
        async with DockerBackend(url=over_ssh) as backend:
            try:
                await check(backend, base_image, folder)
                (folder / "run").write_text("not sent again")
                await check_sent(backend, base_image, folder)
            finally:
                await backend._sandboxes.client._query_json(
                    f"volumes/atropos-{folder.name}", method="DELETE", params={}
                )

    async def test_that_is_none_is_refused(self, docker_backend, base_image, tmp_path):
        with pytest.raises(ValueError, match="no folder of this host"):
            async with docker_backend.open(SandboxSpec(base_image, mounts={"/x": tmp_path / "none"})):
                pass


async def check_sent(backend, image, folder):
    async with backend.open(SandboxSpec(image, mounts={"/opt/tools": folder})) as box:
        assert (await box.exec(["/opt/tools/run"])).output == "works\n"


def test_other_folders_make_another_kind(folder):
    assert Kind.of(SandboxSpec("image", mounts={"/a": folder})) != Kind.of(SandboxSpec("image"))


async def test_a_local_sandbox_has_none(folder):
    async with LocalBackend() as backend:
        with pytest.raises(NotSupported, match="mount none"):
            async with backend.open(SandboxSpec("none", mounts={"/a": folder})):
                pass
