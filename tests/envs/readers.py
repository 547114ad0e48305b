"""Folders that this process may read and not write."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Make a folder that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def reading_only(folder: Path) -> Iterator[None]:
    """Be somebody who may only read the folder."""
    if os.geteuid() == 0:
        os.setresuid(NOBODY, NOBODY, 0)
    else:
        folder.chmod(0o555)
    try:
        yield
    finally:
        if os.getresuid()[2] == 0:
            os.setresuid(0, 0, 0)
        else:
            folder.chmod(0o755)
