"""A disk of a few megabytes that a test can fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A tmpfs at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no room."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 16, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def make_room(self) -> None:
        """Take the filler away."""
        self._filler.unlink()


@contextmanager
def small_disk(path: Path, megabytes: int = 16) -> Iterator[SmallDisk]:
    """Mount one, which only root can."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "x", path]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("needs root, who may mount a small disk")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", path], check=False)
