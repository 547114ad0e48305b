"""The control group of a sandbox: its processes, how near it is to its limits, and its end. Versions 1 and 2."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

TREE = Path("/sys/fs/cgroup")
_FREEZE_S = 2.0
_TICK_S = 0.0005
_COUNTS = (
    *(("memory", f"memory.{kind}") for kind in ("max_usage_in_bytes", "failcnt")),
    *(("memory", f"memory.memsw.{kind}") for kind in ("max_usage_in_bytes", "failcnt")),
    ("cpuacct", "cpuacct.usage"),
)
_FULL = 0.97
"""The share of its memory at which a sandbox counts as at its limit."""


_WEIGHTS = {False: ("cpu.shares", 1024, 262_144), True: ("cpu.weight", 100, 10_000)}
"""By version: the file, the weight of one process, and the highest possible weight."""


def set_weight(parent: str, unified: bool, tree: Path = TREE) -> None:
    """Give the control group of all sandboxes, of all runs, the weight of one process for each of its sandboxes.

    Else they would share the weight of one, and get a tenth of the processors beside other load.
    """
    file, one, most = _WEIGHTS[unified]
    folder = tree / parent if unified else tree / "cpu" / parent
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            count = sum(entry.is_dir() for entry in entries)
        (folder / file).write_text(str(min(max(count, 1) * one, most)), encoding="ascii")


def is_unified(tree: Path = TREE) -> bool:
    """Return whether the host has version 2 alone."""
    return (tree / "cgroup.controllers").exists()


@dataclass(frozen=True, slots=True)
class Cgroup:
    """path: below each hierarchy, without a slash before it."""

    path: str
    unified: bool
    tree: Path = TREE

    def _folder_of(self, controller: str) -> Path:
        return self.tree / self.path if self.unified else self.tree / controller / self.path

    def folders(self) -> list[Path]:
        """Return its folder in each of its hierarchies."""
        if self.unified:
            return [self.tree / self.path]
        return [folder / self.path for folder in self.tree.iterdir() if not folder.is_symlink()]

    def processes(self) -> list[int]:
        """Return the ids of its processes, those of groups below it left out."""
        try:
            return [
                int(pid) for pid in (self._folder_of("freezer") / "cgroup.procs").read_text(encoding="ascii").split()
            ]
        except OSError:  # it is gone
            return []

    def freeze(self) -> bool:
        """Stop all its processes, until `thaw`. Returns whether all stand still: one in wait for another in the kernel
        may not, but goes no further than to the end of its system call."""
        until = time.monotonic() + _FREEZE_S
        self._switch("1", "FROZEN")
        while not self._is_frozen():
            if time.monotonic() > until:
                return False
            time.sleep(_TICK_S)
        return True

    def thaw(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._switch("0", "THAWED")

    def _switch(self, unified: str, old: str) -> None:
        file, word = ("cgroup.freeze", unified) if self.unified else ("freezer.state", old)
        (self._folder_of("freezer") / file).write_text(word, encoding="ascii")

    def _is_frozen(self) -> bool:
        folder = self._folder_of("freezer")
        if self.unified:
            return "frozen 1" in (folder / "cgroup.events").read_text(encoding="ascii")
        return (folder / "freezer.state").read_text(encoding="ascii").strip() == "FROZEN"

    def reached_limit(self) -> str | None:
        """Return the limit that it is at; None for none."""
        try:
            memory, limit = (
                ("memory.current", "memory.max") if self.unified else ("memory.usage_in_bytes", "memory.limit_in_bytes")
            )
            used, most = self._read_number("memory", memory), self._read_number("memory", limit)
            # What files have in memory is given up when it is needed.
            if most is not None and used is not None and used - self._cache_bytes() >= _FULL * most:
                return "memory"
            current, most = self._read_number("pids", "pids.current"), self._read_number("pids", "pids.max")
            return "processes" if most is not None and current is not None and current >= most else None
        except OSError:
            return None

    def has_hit_limit(self) -> bool:
        """Return whether processes were killed or refused at a limit, ever: a reset does not clear this."""
        killed = ("memory", "memory.events" if self.unified else "memory.oom_control", "oom_kill")
        refused = ("pids", "pids.events", "max")
        try:
            return any(self._read_counts(controller, file).get(name, 0) for controller, file, name in (killed, refused))
        except OSError:
            return True

    def _read_counts(self, controller: str, file: str) -> dict[str, int]:
        lines = (self._folder_of(controller) / file).read_text(encoding="ascii").splitlines()
        return {name: int(value) for name, value in map(str.split, lines)}

    def _read_number(self, controller: str, file: str) -> int | None:
        text = (self._folder_of(controller) / file).read_text(encoding="ascii").strip()
        return None if text == "max" else int(text)

    def _cache_bytes(self) -> int:
        found = self._read_counts("memory", "memory.stat")
        return sum(found.get(f"total_{name}", found.get(name, 0)) for name in ("active_file", "inactive_file"))

    def reset_counts(self) -> None:
        """Begin its counts of use again, as far as the kernel allows: in version 1."""
        if self.unified:
            return
        for controller, file in _COUNTS:
            with contextlib.suppress(OSError):
                (self._folder_of(controller) / file).write_text("0", encoding="ascii")

    def kill(self) -> None:
        """Kill all its processes, frozen ones too; they are gone a moment later."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self.thaw()

    def remove(self) -> bool:
        """Remove it with the groups below it. Returns whether it is gone: not while it has processes."""
        gone = True
        for folder in self.folders():
            for inner, _, _ in os.walk(folder, topdown=False):
                try:
                    Path(inner).rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    gone = False
        return gone
