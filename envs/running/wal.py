"""Tell whether SQLite has lost commits with a damaged write-ahead log; SQLite itself says nothing.

After a crash SQLite takes the log up to its first frame with a wrong checksum. The file beside it, `-shm`, says how
many frames were committed, as long as the machine has not been restarted since: so missing ones show.
Source: https://www.sqlite.org/walformat.html
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER, _SIZE = "=16xI76xI", 100
"""Fields of the index: the last committed frame, and how many frames are in the database itself already."""


@dataclass(frozen=True, slots=True)
class Frames:
    """committed: frames of the log that hold commits. copied: how many of them the database has itself."""

    committed: int
    copied: int

    def lost(self, found: Frames) -> int:
        """Return how many frames with commits SQLite has not found."""
        return 0 if self.copied >= self.committed else max(0, self.committed - found.committed)


def frames_of(database: Path, since: float = 0.0) -> Frames:
    """Return the index's figures for a database's log; nothing without an index, or if it is older than `since`,
    in seconds since 1970."""
    index, log = (database.with_name(database.name + suffix) for suffix in ("-shm", "-wal"))
    try:
        head = index.read_bytes()[:_SIZE]
        changed = max(path.stat().st_mtime for path in (index, log) if path.exists())
    except FileNotFoundError:
        return Frames(0, 0)
    if len(head) < _SIZE or changed < since:
        return Frames(0, 0)
    return Frames(*struct.unpack(_HEADER, head))
