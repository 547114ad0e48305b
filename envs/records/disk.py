"""Write to a disk that may be full or away: nothing is lost, everything waits for it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import math
import os
import resource
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import orjson

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S = 5.0
"""Pause before a write is tried again, in seconds."""

LARGE_FILE = 2**30
"""A limit below so many bytes would be met by a run's journal or rollouts."""

LOCK = "lock"
"""The file in a run's directory; it is there as long as the directory is the run's."""

_PASSING = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),  # descriptors or memory used up
        *(errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN),
        *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR),  # moved, unmounted, closed to us
    }
)
"""Passing errors of a write, beside a full disk."""
_PASSING_SQLITE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)


def is_disk_full(error: BaseException) -> bool:
    """Tell whether an error of the file system or of SQLite means a full disk."""
    return "disk is full" in str(error) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def is_transient(error: BaseException) -> bool:
    """Tell whether a failed write may succeed later: the disk is full or away, or something is used up."""
    if isinstance(error, sqlite3.OperationalError):
        code = getattr(error, "sqlite_errorcode", 0)
        # A file that ends too early is damaged.
        return is_disk_full(error) or (code & 0xFF in _PASSING_SQLITE and code != sqlite3.SQLITE_IOERR_SHORT_READ)
    return is_disk_full(error) or getattr(error, "errno", None) in _PASSING


class NoFolder(ValueError):
    """Results can't be written where they should; the message names the place and the remedy."""


def make_folder(given: Path | None, usual: Path, option: str) -> Path:
    """Make the folder for results: the `given` one, else the `usual` one. Raises NoFolder."""
    if (most := _largest_file()) < LARGE_FILE:
        raise NoFolder(
            f"this process may write files of {most:,} bytes at most, and those of a run grow beyond that: start it "
            "in a shell with `ulimit -f unlimited`"
        )
    path = usual if given is None else given
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / ".writable").write_bytes(b"")
        (path / ".writable").unlink()
    except OSError as error:
        what = f"{option} {path}" if given else f"{path.absolute()}, where results go,"
        raise NoFolder(f"{what} can't be written ({error.strerror}); give another {option}") from error
    return path


def _largest_file() -> float:
    """Return how many bytes a file of ours may have: infinite without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return math.inf if soft == resource.RLIM_INFINITY else soft


async def retry_until_space(
    path: Path, work: Callable[[], T], stopping: Callable[[], bool] = lambda: False, *, home: Path | None = None
) -> T:
    """Do `work` in a thread, again and again while the disk is full or away. Raises any other error, and the error
    of such a disk when the run is `stopping`.

    home: the run's directory. Nothing is written without it, because an empty folder may stand in its place."""

    def at_home() -> T:
        if home is not None and not (home / LOCK).exists():
            raise FileNotFoundError(errno.ENOENT, f"the run's directory is away, or its file {LOCK}", str(home))
        return work()

    while True:
        try:
            return await asyncio.to_thread(at_home)
        except OSError as error:
            if not is_transient(error):
                raise error if error.filename else OSError(error.errno, error.strerror, str(path)) from error
            if stopping():
                logger.error("%s: %s; this was not written, because the run ends", path, error)
                raise
            logger.error("%s: %s; waiting until it can be written", path, error)
        again = time.monotonic() + PAUSE_S
        while time.monotonic() < again and not stopping():  # noqa: ASYNC110 - any kind of run calls it
            await asyncio.sleep(min(0.1, PAUSE_S))


def append(file: FileIO, data: bytes) -> None:
    """Write all of `data`, however little the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def append_line(path: Path, line: bytes, *, flush: bool = False) -> None:
    """Add a line to a file, whole or, on a full disk, not at all; behind a torn one that a dead process has left.
    Makes a missing file, but not its folder, because somebody may have moved that. flush: it is on the disk, not only
    with the system, when this returns."""
    with path.open("a+b", buffering=0) as file:
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)  # or it would cut off the lines of others with its own
        end = file.seek(0, 2)
        try:
            append(file, (b"\n" if _is_torn(file) else b"") + line + b"\n")
            if flush:
                os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def close_line(path: Path) -> None:
    """End the torn last line of a dead process's file, so only that line is lost."""
    if path.exists():
        with path.open("a+b", buffering=0) as file:
            if _is_torn(file):
                file.write(b"\n")


def _is_torn(file: FileIO) -> bool:
    """Return whether a file ends within a line."""
    if not file.seek(0, 2):
        return False
    file.seek(-1, 2)
    return file.read(1) != b"\n"


def json_lines(path: Path, most: int | None = None) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines, in its last `most` bytes, without torn and foreign ones; none
    without a file. Raises OSError."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        begin = 0 if most is None else max(0, file.seek(0, 2) - most)
        file.seek(begin)
        lines = file.read(-1 if most is None else most).split(b"\n")
    found = []
    for line in lines[1:] if begin else lines:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def flush(path: Path) -> None:
    """Wait until a file, or each file in a folder, is on the disk, not only with the system. A file renamed without may
    be empty after a power cut. Raises OSError."""
    for one in path.rglob("*") if path.is_dir() else (path,):
        if one.is_file():
            with one.open("rb") as file:
                os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part, even beside other writers and
    after a power cut.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    with ExitStack() as undo:
        undo.callback(temporary.unlink, missing_ok=True)
        temporary.write_bytes(data)
        flush(temporary)
        temporary.replace(path)
        undo.pop_all()
