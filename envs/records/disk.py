"""Write to a disk that may be full: nothing is lost, everything waits until there is room."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S = 5.0
"""Pause before a write is tried again, in seconds."""


def no_space(error: Exception) -> bool:
    """Tell whether an error of the file system or of SQLite says that the disk is full."""
    return "disk is full" in str(error) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


async def until_room(path: Path, work: Callable[[], T]) -> T:
    """Do `work` in a thread, again and again while the disk is full. Raises what else it raises."""
    while True:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            if not no_space(error):
                raise
            logger.error("%s: %s; waiting until there is room", path, error)
        await asyncio.sleep(PAUSE_S)


def append(file: FileIO, data: bytes) -> None:
    """Write all of `data`, however little the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, which is made where it isn't there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        append(file, line + b"\n")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part, whoever writes beside us.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
