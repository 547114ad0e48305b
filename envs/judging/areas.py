"""The judged parts of a machine: the source tree, and the paths that a task names beside it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath

from envs.judging.tree import Scan, Tree, skipped
from envs.types import Hidden
from sandboxes.base import Sandbox, SandboxError

_OF_PATHS = frozenset((None, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM))
"""Errors that the files in a sandbox can cause."""


@dataclass(frozen=True, slots=True)
class Area:
    """A file or directory outside of the source tree, as it was found.

    folder: the base of relative names: the directory itself, or the file's parent directory.
    """

    folder: str
    tree: Tree


@dataclass(frozen=True, slots=True)
class Start:
    """The judged parts before the work, for comparison.

    tree: the source tree; None if it is not judged.
    elsewhere: the other judged parts, by absolute path; None for a missing one.
    """

    tree: Tree | None
    elsewhere: Mapping[str, Area | None] = field(default_factory=dict)

    @property
    def paths(self) -> int:
        """Return the number of paths in all of them."""
        return len(self.tree or ()) + sum(len(area.tree) for area in self.elsewhere.values() if area is not None)


def graded_git(hidden: Hidden) -> bool:
    """Return whether a task's tests look at its `.git`."""
    return any(PurePosixPath(path).name == ".git" and not path.startswith("/") for path in hidden.graded)


def inside(path: str, workdir: str) -> bool:
    """Return whether a path is in the source tree. The whole machine is none."""
    folder = workdir.rstrip("/")
    return folder != "" and (path == folder or path.startswith(f"{folder}/"))


def graded_paths(hidden: Hidden, workdir: str) -> Iterator[str]:
    """Yield the absolute paths of the judged parts beside the source tree."""
    for path in hidden.graded:
        absolute = path if path.startswith("/") else f"{workdir.rstrip('/')}/{path}"
        if hidden.graded_alone or not inside(absolute, workdir):
            yield absolute


def is_ours(error: Exception) -> bool:
    """Return whether reading a sandbox's files failed for another reason than these files and their size, such as too
    many open files of this process. Many a SandboxError is an OSError."""
    if isinstance(error, OSError) and not isinstance(error, SandboxError):
        return error.errno not in _OF_PATHS
    return isinstance(error, SandboxError) or not isinstance(error, ValueError)


async def scan_tree(sandbox: Sandbox, path: str, *, git: bool, start: Tree | None) -> Scan:
    """Return the content of a directory of a sandbox. git, start: see `Scan`.

    Raises SandboxError, OSError, TarError, and ValueError when it is over the caps."""
    make = partial(Scan, path, git=git, start=start)
    scan = await sandbox.read_tree(path, make, skip=skipped(git=git))
    if scan.unread:  # too large, perhaps by what was built
        make = partial(make, spares=True)
        scan = await sandbox.read_tree(path, make, skip=skipped(git=git))
    if scan.lacking:  # other names of unchanged files
        scan = await sandbox.read_tree(path, partial(make, needed=scan.lacking), skip=skipped(git=git))
    return await asyncio.to_thread(scan.done)


async def scan_of(
    sandbox: Sandbox, path: str, *, git: bool, compares: bool = False, before: Area | None = None
) -> tuple[str, Scan] | None:
    """Return the folder and content of a file or directory of a sandbox; None if it is missing.

    compares: keep the contents that differ from `before`, all of them if it is None. Raises as `scan_tree`.
    """
    plain = "/" + path.strip("/")
    known = before.tree if before is not None else {}
    try:
        scan = await scan_tree(sandbox, plain, git=git, start=known if compares else None)
    except FileNotFoundError:
        return None
    folder, _, name = plain.rpartition("/")
    # The archive of a file holds the file by its name; a directory with nothing but that is written with "/" after.
    single = not path.endswith("/") and list(scan.tree) == [name] and scan.tree[name].kind == "file"
    found = (folder or "/") if single else plain
    if before is not None and found != before.folder:  # a file in place of a directory, or the other way round
        return await scan_of(sandbox, path, git=git, compares=True)
    return found, scan
