"""A thread with mounts of its own."""

import os
from pathlib import Path

import pytest

from sandboxes.docker.crun import kernel
from sandboxes.docker.crun.mount_namespace import MountNamespace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has mounts of its own")


async def test_what_is_mounted_there_is_seen_nowhere_else(tmp_path):
    async with MountNamespace() as stage:
        await stage.run(kernel.mount, "none", str(tmp_path), "tmpfs", 0)
        await stage.run((tmp_path / "file").write_text, "x")
        assert not (tmp_path / "file").exists()
        assert str(tmp_path) not in Path("/proc/mounts").read_text()
        await stage.run(kernel.unmount, str(tmp_path))
        with pytest.raises(FileNotFoundError):
            await stage.run((tmp_path / "file").read_text)


async def test_a_visit_ends_where_it_began():
    def spaces():
        seen = [os.readlink("/proc/thread-self/ns/mnt")]  # noqa: PTH115
        with stage.enter_process(os.getpid()):
            seen.append(os.readlink("/proc/thread-self/ns/mnt"))  # noqa: PTH115
        return [*seen, os.readlink("/proc/thread-self/ns/mnt")]  # noqa: PTH115

    async with MountNamespace() as stage:
        own, visited, after = await stage.run(spaces)
    assert own == after
    assert visited == os.readlink("/proc/self/ns/mnt") != own  # noqa: PTH115


async def test_other_namespaces_can_be_visited_too():
    def spaces():
        own = os.readlink("/proc/thread-self/ns/ipc")  # noqa: PTH115
        kernel.unshare(kernel.NEW_IPC)
        apart = os.readlink("/proc/thread-self/ns/ipc")  # noqa: PTH115
        with stage.enter_process(os.getpid(), "ipc"):
            visited = os.readlink("/proc/thread-self/ns/ipc")  # noqa: PTH115
        return own, apart, visited, os.readlink("/proc/thread-self/ns/ipc")  # noqa: PTH115

    async with MountNamespace() as stage:
        own, apart, visited, after = await stage.run(spaces)
    assert own == visited == after != apart


async def test_where_mounts_are_refused_it_can_not_be_entered(monkeypatch):
    def refuse(flags):
        raise PermissionError("no")

    monkeypatch.setattr(kernel, "unshare", refuse)
    with pytest.raises(PermissionError):
        async with MountNamespace():
            pass
