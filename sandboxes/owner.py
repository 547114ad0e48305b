"""Who made a sandbox: enough to tell later, from labels or a name alone, whether its maker still lives."""

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


@dataclass(frozen=True, slots=True)
class Owner:
    """One backend of one process of one boot of one host."""

    id: str
    host: str
    boot: str
    pid: int
    start: str

    @classmethod
    def of_this_process(cls) -> Owner:
        pid = os.getpid()
        return cls(uuid.uuid4().hex[:12], socket.gethostname(), _boot_id(), pid, process_start(pid))

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Owner:
        """Read an owner from labels. Raises KeyError or ValueError when they are not ours."""
        return cls(
            id=labels[PREFIX + "owner"],
            host=labels[PREFIX + "host"],
            boot=labels[PREFIX + "boot"],
            pid=int(labels[PREFIX + "pid"]),
            start=labels[PREFIX + "start"],
        )

    def labels(self) -> dict[str, str]:
        return {
            PREFIX + "owner": self.id,
            PREFIX + "host": self.host,
            PREFIX + "boot": self.boot,
            PREFIX + "pid": str(self.pid),
            PREFIX + "start": self.start,
        }

    def is_of_this_host(self) -> bool:
        return self.host == socket.gethostname()

    def is_dead(self) -> bool:
        """Return whether it is certainly gone, as /proc tells; another host's processes count as alive."""
        if not self.is_of_this_host():
            return False
        return self.boot != _boot_id() or self.start != process_start(self.pid)
