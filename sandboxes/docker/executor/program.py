"""The executor's program, its arguments, and the capabilities that it and the commands under it need."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from importlib import resources

from sandboxes.base import SandboxError
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.proxy import PORT

EXECUTOR = ".atropos-executor"
"""The program's name in a container's root directory."""
LEASE_S = 900
"""Seconds of silence after which an executor ends: its owner's host is gone."""
CAPABILITIES = ("KILL", "SETGID", "SETPCAP", "SETUID")
"""Capabilities of process 1, to run commands as another user and to kill them."""

ENDS = {70: "memory", 2: "processes"} | dict.fromkeys((71, 132, 134, 135, 136, 139), "executor")
"""Exit statuses of the executor without memory, of gVisor without threads, and of the executor in its other failures.
Nobody outside ends them so."""

_ROOTS = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "SYS_CHROOT": 18,
    "SETFCAP": 31,
}
"""Capabilities of root's commands, and their bits in the kernel's sets: Docker's default but for three. By NET_RAW
packet sockets take memory beyond all limits, and packets are forged in a network with other sandboxes; by MKNOD a
device could take the place of a file just before somebody outside opens it; AUDIT_WRITE writes to the host's
own log."""
_SWITCH_USERS = ("SETGID", "SETUID")


def program_for(architecture: str) -> bytes:
    """Return the executor for this architecture ("amd64"). Raises SandboxError if there is none."""
    binary = resources.files("sandboxes.docker") / "executor" / f"executor-{architecture}"
    if not binary.is_file():
        raise SandboxError(f"no executor for {architecture}; build one with sandboxes/docker/executor/build.sh")
    return binary.read_bytes()


def hosts_of(hostname: str) -> bytes:
    """Return /etc/hosts of a container without a network; an image's own is empty."""
    return f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\t{hostname}\n".encode()


def archive_of(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return a tar archive for the root directory, of files' contents and modes by path."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (data, mode) in files.items():
            info = tarfile.TarInfo(path)
            info.mode, info.size = mode, len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def executor_arguments(kind: Kind, lease_s: int = LEASE_S) -> Sequence[str]:
    """Return the executor's arguments for a container of a kind. lease_s: 0 if somebody else ends it."""
    mask = sum(1 << _ROOTS[name] for name in root_capabilities(kind))
    return [
        f"lease={lease_s}",
        f"fsize={kind.limits.disk_mb * 2**20}",
        *([f"capabilities={mask:x}"] if mask else []),
        *([f"tunnels={PORT}"] if kind.limits.allowed_hosts else []),
    ]


def root_capabilities(kind: Kind) -> tuple[str, ...]:
    """Return the capabilities of root's commands."""
    if kind.limits.capabilities == "default":
        return tuple(_ROOTS)
    return _SWITCH_USERS if kind.switch_users else ()
