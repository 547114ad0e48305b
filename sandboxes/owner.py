"""The maker of a sandbox: enough to find out later, from labels or a name alone, whether it still lives."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "atropos-agent."


def process_start(pid: int) -> str:
    """Return when the process started, in clock ticks since boot; empty when there is no such process.

    A pid alone is not enough: the kernel uses numbers again.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


def boot_time() -> float:
    """Return the time of this machine's start, in seconds since 1970; 0 if it does not say."""
    path = Path("/proc/stat")
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), 0.0)


def process_space() -> str:
    """Return the space in which process ids have a meaning: this kernel's boot, and the process namespace in it."""
    try:
        return f"{_boot_id()}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except FileNotFoundError:
        return _boot_id()


@dataclass(frozen=True, slots=True)
class Owner:
    """One backend of one process of one boot of one host.

    space: the boot and the process namespace of `pid` and `start`.
    """

    id: str
    host: str
    space: str
    pid: int
    start: str

    @classmethod
    def of_this_process(cls) -> Owner:
        pid = os.getpid()
        return cls(uuid.uuid4().hex[:12], socket.gethostname(), process_space(), pid, process_start(pid))

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Owner:
        """Read an owner from labels. Raises KeyError or ValueError when they are not ours."""
        return cls(
            id=labels[PREFIX + "owner"],
            host=labels[PREFIX + "host"],
            space=labels.get(PREFIX + "space") or labels[PREFIX + "boot"],  # as earlier versions wrote it
            pid=int(labels[PREFIX + "pid"]),
            start=labels[PREFIX + "start"],
        )

    def labels(self) -> dict[str, str]:
        return {
            PREFIX + "owner": self.id,
            PREFIX + "host": self.host,
            PREFIX + "space": self.space,
            PREFIX + "pid": str(self.pid),
            PREFIX + "start": self.start,
        }

    def is_dead(self) -> bool:
        """Return whether it is certainly gone, by /proc. Owners beyond the sight of /proc count as alive: processes of
        another machine, another boot or another process namespace, whatever its host's name."""
        return self.space == process_space() and self.start != process_start(self.pid)

    def is_alive(self) -> bool:
        """Return whether it certainly lives."""
        return self.space == process_space() and not self.is_dead()
