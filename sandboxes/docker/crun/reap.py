"""An owner's remains on the disk and among control groups, and their removal.

Everything of an owner is in one folder, and the owner holds its lock for life. Beside it a process waits for this
lock: if the owner is killed, this process clears up, and otherwise the next owner at its start.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sandboxes.docker.crun.cgroups import Cgroup, is_unified
from sandboxes.docker.crun.layers import remove_tree
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.daemon.reap import remove_owned

logger = logging.getLogger(__name__)

OWNERS = "atropos-agent"
"""The folder of all owners, in the Docker daemon's directory."""
LOCK, CGROUP, STATE = "lock", "cgroup", "crun"
PREFIX = "atropos-"
_LONG_S = 30.0
_TICK_S = 0.01


def reap_dead_folders(storage: Path) -> int:
    """Remove the remains of dead owners. Returns how many owners there were."""
    owners, removed = storage / OWNERS, 0
    folders = sorted(owners.iterdir()) if owners.is_dir() else []
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            removed += _remove_if_dead(folder)
    if removed:
        logger.warning("Removed the sandboxes of %d dead processes", removed)
    return removed


def make_locked(folder: Path) -> int:
    """Make an owner's folder, which nobody sees before it is locked. Returns the lock, held."""
    with _lock_owners(folder.parent):
        folder.mkdir(mode=0o700)
        lock = _open_lock(folder)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _remove_if_dead(folder: Path) -> bool:
    with _lock_owners(folder.parent):
        lock = _open_lock(folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # it lives, or is being removed
            os.close(lock)
            return False
    try:
        remove_remains(folder)
        return True
    finally:
        os.close(lock)


@contextlib.contextmanager
def _lock_owners(owners: Path) -> Iterator[None]:
    """Keep others from making and locking an owner's folder meanwhile."""
    place = os.open(owners, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _open_lock(folder: Path) -> int:
    return os.open(folder / LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


def remove_remains(folder: Path) -> None:
    """End and remove all remains of a dead owner; the caller holds its lock."""
    until = time.monotonic() + _LONG_S
    while _kill_remains(folder) and time.monotonic() < until:
        time.sleep(_TICK_S)
    remove_tree(folder)


def _kill_remains(folder: Path) -> bool:
    """Kill running processes and remove control groups. Returns whether there was anything."""
    found = False
    for pid in _runtimes(folder):
        found = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for cgroup in _cgroups(folder):
        cgroup.kill()
        found |= not cgroup.remove()
    return found


def _runtimes(folder: Path) -> Iterator[int]:
    """Yield the processes of crun's for this owner, with those about to become a sandbox."""
    root = os.fsencode(folder / STATE)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if root in arguments:
            yield int(process.name)


def _cgroups(folder: Path) -> list[Cgroup]:
    try:
        parent = (folder / CGROUP).read_text(encoding="utf-8")
    except FileNotFoundError:  # it had not got that far
        return []
    unified = is_unified()
    name = f"{PREFIX}{folder.name}-*"
    above = Cgroup(parent, unified).folders()
    return [Cgroup(f"{parent}/{one}", unified) for one in {found.name for up in above for found in up.glob(name)}]


async def _remove_holders(owner_id: str) -> None:
    """Remove the containers for holding an owner's images. Raises SandboxError if the Docker daemon does not."""
    async with connect() as client:
        await remove_owned(client, owner_id)


if __name__ == "__main__":
    remove_remains(Path(sys.argv[1]))
    asyncio.run(_remove_holders(Path(sys.argv[1]).name))
