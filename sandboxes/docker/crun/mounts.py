"""The mounts in /dev of a sandbox, made again: programs inside can write to them, though they are none of its files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.docker.crun import kernel

TOP = "dev"
_WRITABLE = {"tmpfs", "devpts", "mqueue"}
_STATELESS = {"proc", "sysfs", "cgroup", "cgroup2"}
"""Programs inside can leave nothing in them: they belong to the kernel, or are mounted for reading alone."""
_FLAGS = {
    "ro": kernel.READ_ONLY,
    "nosuid": kernel.NO_SUID,
    "nodev": kernel.NO_DEV,
    "noexec": kernel.NO_EXEC,
    "noatime": kernel.NO_ATIME,
    "relatime": kernel.RELATIME,
    "strictatime": kernel.STRICT_ATIME,
    "rw": 0,
}
_QUEUES_MODE = 0o1777


@dataclass(frozen=True, slots=True)
class Mount:
    """target: from the root directory, without a slash before it."""

    source: str
    target: str
    kind: str
    flags: int
    options: str


@dataclass(frozen=True, slots=True)
class Device:
    """A node or a link in /dev. link: its target, if it is one."""

    name: str
    mode: int
    number: int
    link: str = ""


def fresh_mounts(template: Mapping[str, Any]) -> tuple[Mount, ...] | None:
    """Return a description's mounts in /dev, in order; None if it has a mount that can't be made again."""
    found = []
    for mount in template["mounts"]:
        target = mount["destination"].strip("/")
        if mount.get("type") in _STATELESS:
            continue
        if mount.get("type") not in _WRITABLE or target.partition("/")[0] != TOP:
            return None
        options = mount.get("options") or []
        flags = sum({_FLAGS.get(option, 0) for option in options})
        rest = ",".join(option for option in options if option not in _FLAGS)
        found.append(Mount(mount.get("source") or mount["type"], target, mount["type"], flags, rest))
    return tuple(found) if found and found[0].target == TOP else None


def list_devices(folder: Path, mounts: Sequence[Mount]) -> tuple[Device, ...] | None:
    """Return the entries of /dev beside mounts, before any command has run; None if one can't be made again."""
    found, mounted = [], {mount.target.rpartition("/")[2] for mount in mounts}
    with os.scandir(folder) as entries:
        for entry in entries:
            seen = entry.stat(follow_symlinks=False)
            link = str(Path(entry.path).readlink()) if entry.is_symlink() else ""
            if link or stat.S_ISCHR(seen.st_mode) or stat.S_ISBLK(seen.st_mode):
                found.append(Device(entry.name, seen.st_mode, seen.st_rdev, link))
            elif entry.name not in mounted:
                return None
    return tuple(found)


def mount_devices(mounts: Iterable[Mount], devices: Iterable[Device]) -> None:
    """Make /dev below the present directory, a still invisible root. Raises OSError."""
    for mount in mounts:
        if mount.target != TOP:
            Path(mount.target).mkdir(mode=0o755)
        kernel.mount(mount.source, mount.target, mount.kind, mount.flags, mount.options)
        if mount.kind == "mqueue":
            _remove_queues(Path(mount.target))
    for device in devices:
        path = Path(TOP, device.name)
        if device.link:
            path.symlink_to(device.link)
        else:
            os.mknod(path, device.mode, device.number)
            path.chmod(stat.S_IMODE(device.mode))  # whatever this process's umask is


def change_root() -> None:
    """Make the present directory the root, and let go of the old one. Raises OSError."""
    kernel.pivot_root(".", ".")
    kernel.unmount(".")
    kernel.mount("none", "/", None, kernel.REMOUNT | kernel.BIND | kernel.RELATIME)  # as crun gives it


def _remove_queues(folder: Path) -> None:
    """The namespace has one file system of queues, however often it is mounted: its old queues are still there."""
    for queue in folder.iterdir():
        queue.unlink()
    os.chown(folder, 0, 0)
    folder.chmod(_QUEUES_MODE)
