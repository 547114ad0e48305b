"""A container's share of this host's disk: blocks and inodes, also of volumes and of files without a name.

Only root can look there. One kind of file stays unseen, as the kernel shows it to nobody: a deleted file, if processes
have no more of it than a descriptor in a socket.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandboxes.shielding import ending, run_concurrently

_LOOK_S = 60.0
_MOST_OPEN = 100_000
"""The most open files, programs and mappings that are looked at, of all processes in a container."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_KCMP = {"x86_64": 312, "aarch64": 272}
_FILES = 2
"""kcmp(KCMP_FILES): whether two threads share a table of files. If the kernel can't tell, each is looked at."""


@dataclass(frozen=True, slots=True)
class HostPaths:
    """A container's places on this host.

    folders: its written files, and its volumes. process: the id of its first one.
    """

    folders: tuple[Path, ...]
    process: int


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """bytes: in blocks. files: inodes, at least. whole: False if there is too much to look at, so the total
    is unknown."""

    bytes: int
    files: int
    whole: bool = True


async def disk_usage(host_paths: HostPaths) -> DiskUsage:
    """Count a container's blocks and inodes. Raises OSError if they can't be counted."""
    try:
        size, files = await run_concurrently(_du(unit, host_paths) for unit in ("--block-size=1", "--inodes"))
    except TimeoutError:
        return DiskUsage(0, 0, whole=False)
    nameless, whole = await asyncio.to_thread(_deleted_file_sizes, host_paths)
    return DiskUsage(size + sum(nameless), files + len(nameless), whole)


async def _du(unit: str, host_paths: HostPaths) -> int:
    """Return the sum of `du`, which walks trees of any depth. Files that go meanwhile are none of its errors."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *("du", "-sxc", unit, "--", *map(str, host_paths.folders)),
        stdout=pipe,
        stderr=null,
        env=os.environ | {"LC_ALL": "C"},  # "total" in English, whatever this machine's language is
    )
    async with ending(process), asyncio.timeout(_LOOK_S):
        output, _ = await process.communicate()
    total = output.splitlines()[-1:] or [b""]
    if not total[0].endswith(b"total"):
        raise OSError("this host's du is not GNU's")
    return int(total[0].split()[0])


def _deleted_file_sizes(host_paths: HostPaths) -> tuple[list[int], bool]:
    """Return the sizes in blocks of deleted files that processes hold open or mapped, and whether these are all."""
    root = Path(f"/proc/{host_paths.process}/root")
    try:
        devices = {path.stat().st_dev for path in (root, *host_paths.folders)}
    except OSError:
        return [], True  # it is going
    found: dict[tuple[int, int], int] = {}
    for looked, path in enumerate(_open_files(host_paths.process)):
        if looked >= _MOST_OPEN:
            return list(found.values()), False
        try:
            seen = os.stat(path)  # noqa: PTH116  of very many
        except OSError:
            continue
        if seen.st_nlink == 0 and seen.st_dev in devices and stat.S_ISREG(seen.st_mode):
            found[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
    return list(found.values()), True


def _open_files(first: int) -> Iterator[str]:
    for process in descendants(first):
        for thread in _threads_with_own_files(process):
            yield f"/proc/{thread}/exe"  # it may be mapped no more
            for folder in (f"/proc/{thread}/fd", f"/proc/{thread}/map_files"):
                try:
                    with os.scandir(folder) as entries:
                        yield from (entry.path for entry in entries)
                except OSError:
                    continue


def _threads_with_own_files(process: int) -> list[int]:
    """Return the threads of a process with files of their own: mostly its first. The first may have ended before
    the others, or one of them may have taken a table of files for itself. Numbers begin again at the kernel's highest,
    so another thread may have a lower one than the first."""
    try:
        threads = [int(task.name) for task in Path(f"/proc/{process}/task").iterdir()]
    except OSError:
        return []  # it has ended
    threads.sort(key=lambda thread: (thread != process, thread))
    found: list[int] = []
    for thread in threads:
        if not any(_share_files(thread, other) for other in (*found[:1], *found[-1:])):
            found.append(thread)
    return found


def _share_files(one: int, other: int) -> bool:
    differ: int = _LIBC.syscall(_KCMP.get(os.uname().machine, -1), one, other, _FILES, 0, 0)
    return differ == 0


def descendants(first: int) -> Iterator[int]:
    """Yield a process and all below it."""
    todo = [first]
    while todo:
        process = todo.pop()
        yield process
        try:
            threads = list(Path(f"/proc/{process}/task").iterdir())
        except OSError:
            continue  # it has ended
        for thread in threads:
            try:
                todo += map(int, (thread / "children").read_text(encoding="ascii").split())
            except OSError:
                continue
