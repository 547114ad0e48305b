"""Harbor task directories as they are published: in folders, or in tarballs (`.tar.gz`) of a folder.

| file | becomes |
|---|---|
| a directory with task.toml, or with instruction.md and tests/ | a task directory of its name, copied |
| a link from it to a neighbour, such as tests that tasks share | the neighbour's files |
| `task.toml`, where it is missing | one with Harbor's defaults |
| `[environment] docker_image` beside a Dockerfile | left out: publishers name registries of their own there |
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from envs.tasks.adapters.directory import check_separate, convert_each, refuse
from envs.tasks.tarballs import unpack
from envs.tasks.task_folders import check_links, find_below
from envs.types import BadTask, Task

_Source = tuple[str, Callable[[Path], Path]]
"""The place of a task directory, and its copy into a folder."""


def load(source: Path, out: Path) -> list[Task]:
    """Copy every task directory at or below `source` to `out`. Raises BadTask, or one BadTasks for all bad ones."""
    if not source.exists():
        raise BadTask(f"{source} is neither a folder of Harbor task directories nor a tarball of them")
    check_separate(source, out)
    with ExitStack() as unpacked:
        return convert_each(_sources(source, source.resolve().name, unpacked), out, "task", str(source))


def _sources(one: Path, place: str, unpacked: ExitStack) -> Iterator[_Source]:
    """Yield the task directories at or below a folder or a tarball. What tarballs hold is there until `unpacked` is
    closed. Files of a task, of any kind, are its own."""
    if not one.is_dir():
        folder = Path(unpacked.enter_context(tempfile.TemporaryDirectory()))
        try:
            unpack(one, folder)
        except (tarfile.TarError, EOFError, OSError) as error:
            why = f"it can't be unpacked: {' '.join(str(error).split())}; remove it, or get it again"
            yield place, partial(refuse, why)
            return
        yield from _sources(folder, place, unpacked)
        return
    for path in find_below(one, _is_source):
        inner = "/".join((place, *path.relative_to(one).parts))
        if path.is_dir():
            yield inner, partial(_copy, path, one)
        else:
            yield from _sources(path, inner, unpacked)


def _is_source(path: Path) -> bool:
    """Tell whether a path is a task directory or a tarball."""
    if path.is_dir():
        return (path / "task.toml").is_file() or ((path / "instruction.md").is_file() and (path / "tests").is_dir())
    return path.name.endswith(".tar.gz")


def _copy(directory: Path, root: Path, out: Path) -> Path:
    """Copy a task directory into a folder, and return the copy. root: the folder around all that may be linked. Raises
    BadTask."""
    check_links(directory, root)
    copy = out / directory.resolve().name
    try:
        shutil.copytree(directory, copy, symlinks=True)
        for link in [path for path in copy.rglob("*") if path.is_symlink()]:
            _copy_shared(link, directory / link.relative_to(copy), directory.resolve(), root.resolve())
    except shutil.Error as error:
        raise BadTask(f"it can't be copied: {error.args[0][0][2]}; remove that file") from None
    config = copy / "task.toml"
    if not config.is_file():
        config.write_text('schema_version = "1.4"\n', encoding="utf-8")
    elif (copy / "environment/Dockerfile").is_file():
        try:
            table = tomlkit.parse(config.read_text(encoding="utf-8"))
            if table.get("environment", {}).pop("docker_image", None) is not None:
                config.write_text(tomlkit.dumps(table), encoding="utf-8")
        except (TOMLKitError, UnicodeDecodeError, AttributeError):
            pass  # the reader of tasks explains it
    return copy


def _copy_shared(link: Path, origin: Path, directory: Path, root: Path) -> None:
    """Put the files of a neighbour in place of a copied link that leads to them, as nothing is beside the copy."""
    shared = Path(os.path.realpath(origin))  # which takes a circle of links as it is
    if origin.readlink().is_absolute() or shared.is_relative_to(directory) or not shared.is_relative_to(root):
        return
    if shared.is_dir():
        link.unlink()
        shutil.copytree(shared, link, ignore_dangling_symlinks=True)
    elif shared.is_file():
        link.unlink()
        shutil.copy2(shared, link)
