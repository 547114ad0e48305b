"""Finds and kills every process of a command on this machine, also processes outside its process group.

A command is started with a marker variable in its environment. Its processes are the marked ones, their
descendants and the members of their sessions. A process escapes only by clearing its environment and
becoming a daemon in a session of its own, both before the first look.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

_ROUNDS = 200
_KERNELS_OWN = 0x00200000
"""The flag PF_KTHREAD: such a process has no environment, and most on an idle machine are such."""


def kill_marked(marker: str, *, since: ProcessTimestamp | None = None) -> None:
    """Kill the processes whose environment has a variable beginning with `marker` ("NAME=value…").

    since: only processes started after this moment, and the process named in it; the later children of older ones
        are spared.
    """
    needle = marker.encode()
    stopped: set[int] = set()
    for _ in range(_ROUNDS):  # again until none is left: a process can fork while we look
        pids = _find_processes(needle, since)
        if not pids:
            return
        # All are stopped before one is killed: a shell would go on when its child has died.
        if pids <= stopped:
            _signal(pids, signal.SIGKILL)
            time.sleep(0.005)
        else:
            _signal(pids - stopped, signal.SIGSTOP)
            stopped |= pids


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


@dataclass(frozen=True, slots=True)
class ProcessTimestamp:
    """A point in time between older and newer processes; `pid` counts as a newer one."""

    ticks: int
    newest: int
    pid: int

    @classmethod
    def now(cls, pid: int) -> ProcessTimestamp:
        ticks = time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 10**9
        return cls(ticks, int(Path("/proc/loadavg").read_text(encoding="ascii").split()[-1]), pid)

    def is_before(self, pid: int, started: int) -> bool:
        return pid == self.pid or started > self.ticks or (started == self.ticks and pid > self.newest)


def _find_processes(needle: bytes, since: ProcessTimestamp | None) -> set[int]:
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    found: set[int] = set()
    older: set[int] = set()
    kept: set[int] = set()
    for name in (entry.name for entry in os.scandir("/proc") if entry.name.isdigit()):
        try:
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            state, parent, _, session = fields[:4]
            pid = int(name)
            if state in b"ZX" or int(fields[6]) & _KERNELS_OWN:
                continue
            parents[pid], sessions[pid] = int(parent), int(session)
            old = since is not None and not since.is_before(pid, int(fields[19]))
            if b"\0" + needle in b"\0" + _read(f"/proc/{name}/environ"):
                (older if old else found).add(pid)
            elif old:
                kept.add(pid)
        except OSError:  # it ended while we looked, or it is another user's
            continue
    if since is not None:
        # A server that an earlier command has left goes on starting processes.
        kept |= older | {pid for pid in parents if pid != since.pid and _is_descendant(pid, parents, older, since.pid)}
        found -= kept
    # A session counts only when it was started by a marked process, never the one that we run in.
    own = os.getsid(0)
    led = {sessions[pid] for pid in found} - {own}
    while True:
        reached = {pid for pid in parents if parents[pid] in found or sessions[pid] in led}
        more = reached - found - kept
        if not more:
            return found - {os.getpid()}
        found |= more


def _read(path: str) -> bytes:
    """Read a file in /proc, in the quickest way: there are two for each process of the machine."""
    with FileIO(path) as file:
        return file.read()


def _is_descendant(pid: int, parents: dict[int, int], older: set[int], root: int) -> bool:
    """Tell whether a process has an older one above it, below the `root`."""
    above = parents.get(pid, 0)
    while above and above != root:
        if above in older:
            return True
        above = parents.get(above, 0)
    return False
