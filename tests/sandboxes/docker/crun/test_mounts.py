"""What of a description is made anew when a sandbox is reset, and what keeps it from that."""

import os
import stat

import pytest

from sandboxes.docker.crun import kernel
from sandboxes.docker.crun.mount_namespace import MountNamespace
from sandboxes.docker.crun.mounts import Device, Mount, fresh_mounts, list_devices, mount_devices

DEV = {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755"]}
SHM = {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "size=65536"]}
QUEUES = {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid"]}
PROC = {"destination": "/proc", "type": "proc", "source": "proc"}


def test_mounts_in_dev_are_made_with_the_options_that_were_given():
    flags = kernel.NO_SUID | kernel.STRICT_ATIME, kernel.NO_SUID | kernel.NO_DEV
    assert fresh_mounts({"mounts": [PROC, DEV, SHM]}) == (
        Mount("tmpfs", "dev", "tmpfs", flags[0], "mode=755"),
        Mount("shm", "dev/shm", "tmpfs", flags[1], "size=65536"),
    )


@pytest.mark.parametrize(
    "other",
    [
        {"destination": "/run", "type": "tmpfs"},
        {"destination": "/data", "type": "bind", "source": "/data"},
        {"destination": "/dev/hugepages", "type": "hugetlbfs"},
    ],
)
def test_with_a_mount_elsewhere_or_of_another_kind_nothing_is(other):
    assert fresh_mounts({"mounts": [PROC, DEV, other]}) is None


def test_without_a_dev_nothing_is():
    assert fresh_mounts({"mounts": [PROC]}) is None
    assert fresh_mounts({"mounts": []}) is None


def test_devices_are_links_and_nodes_beside_the_mounts(tmp_path):
    mounts = fresh_mounts({"mounts": [DEV, SHM]})
    (tmp_path / "shm").mkdir()
    (tmp_path / "fd").symlink_to("/proc/self/fd")
    mode = os.lstat(tmp_path / "fd").st_mode
    assert list_devices(tmp_path, mounts) == (Device("fd", mode, 0, "/proc/self/fd"),)
    (tmp_path / "other").mkdir()
    assert list_devices(tmp_path, mounts) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
async def test_they_are_made_whatever_the_umask_is(tmp_path):
    mounts = fresh_mounts({"mounts": [DEV, SHM, QUEUES]})
    devices = [Device("null", stat.S_IFCHR | 0o666, os.makedev(1, 3)), Device("fd", 0, 0, "/proc/self/fd")]

    def make():
        os.chdir(tmp_path)
        before = os.umask(0o077)
        try:
            mount_devices(mounts, devices)
        finally:
            os.umask(before)
        null = os.stat("dev/null")  # noqa: PTH116
        assert (null.st_mode, null.st_rdev) == (devices[0].mode, devices[0].number)
        assert sorted(os.listdir("dev")) == ["fd", "mqueue", "null", "shm"]  # noqa: PTH208
        kernel.unmount("dev")

    (tmp_path / "dev").mkdir()
    async with MountNamespace() as stage:
        await stage.run(make)
