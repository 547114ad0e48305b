"""Folders of tasks: where they are found, and the links in them that this machine may follow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from envs.types import BadTask

_READ = (
    *("*", "steps/*", "steps/*/*", "tests/**/*", "steps/*/tests/**/*"),
    *("environment/Dockerfile", "environment/.dockerignore", "environment/docker-compose.yaml", "solution/solve.sh"),
    "steps/*/solution/solve.sh",
)
"""The files of a task that are read on this machine. All others go into sandboxes, where links stay links."""


def find_below(one: Path, wanted: Callable[[Path], bool], seen: set[Path] | None = None) -> Iterator[Path]:
    """Yield the wanted paths at or below a path, sorted, and nothing below one of them.

    seen: the paths before it; links may lead to them again."""
    seen = {one.resolve()} if seen is None else seen
    if wanted(one):
        yield one
        return
    for path in sorted(one.iterdir()):
        # Not of other files: a link to itself has no end.
        if not path.name.startswith(".") and (path.is_dir() or wanted(path)) and (real := path.resolve()) not in seen:
            seen.add(real)
            yield from find_below(path, wanted, seen)


def check_links(directory: Path, root: Path) -> None:
    """Raise BadTask for a file of a task that is a link out of its folder, whose content would reach the model.

    root: the folder around all tasks, in which they may share files."""
    bounds = [Path(os.path.realpath(one)) for one in (directory, root)]
    for path in (path for pattern in _READ for path in directory.glob(pattern) if path.is_symlink()):
        target = Path(os.path.realpath(path))
        if path.exists() and not any(target.is_relative_to(bound) for bound in bounds):
            raise BadTask(
                f"task {bounds[0].name}: {path.relative_to(directory).as_posix()} is a link to {target}, outside of "
                f"{bounds[1]}; put a copy in its place, or give a folder around both"
            )
