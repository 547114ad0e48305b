"""Processes by their ids."""

from pathlib import Path


def lives(pid: int) -> bool:
    """Return whether a process is there and has not ended: it may do so while it is looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
