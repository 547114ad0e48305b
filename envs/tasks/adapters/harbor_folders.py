"""Harbor task directories as they are published: in folders, or in tarballs (`.tar.gz`) of a folder.

| file | becomes |
|---|---|
| a directory with instruction.md and tests/ | a task directory of its name, copied |
| `task.toml`, where it is missing | one with Harbor's defaults |
| `[environment] docker_image` beside a Dockerfile | left out: publishers name registries of their own there |
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from envs.tasks.adapters.directory import apart, convert_each
from envs.tasks.tarballs import unpack
from envs.types import BadTask, Task


def load(source: Path, out: Path) -> list[Task]:
    """Copy every task directory at or below `source` to `out`. Raises BadTask, or one BadTasks for all bad ones."""
    apart(source, out)
    with ExitStack() as unpacked:
        found = _directories(_folders(source, unpacked))
        named = ((f"task {one.resolve().name}", partial(_copy, one)) for one in found)
        return convert_each(named, out, "task", str(source))


def _folders(source: Path, unpacked: ExitStack) -> Iterator[Path]:
    """Yield `source` and what its tarballs hold, until `unpacked` is closed. Raises BadTask."""
    if not source.exists():
        raise BadTask(f"{source} is neither a folder of Harbor task directories nor a tarball of them")
    if source.is_dir():
        yield source
    for tarball in sorted(source.rglob("*.tar.gz")) if source.is_dir() else [source]:
        folder = unpacked.enter_context(tempfile.TemporaryDirectory())
        try:
            unpack(tarball, Path(folder))
        except (tarfile.TarError, EOFError, OSError) as error:
            raise BadTask(f"{tarball} can't be unpacked: {error}; remove it, and get it again") from error
        yield Path(folder)


def _directories(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        if (folder / "instruction.md").is_file() and (folder / "tests").is_dir():
            yield folder
        else:
            yield from _directories(sorted(one for one in folder.iterdir() if one.is_dir() and one.name != ".git"))


def _copy(directory: Path, out: Path) -> Path:
    """Copy a task directory into a folder, and return the copy."""
    copy = out / directory.resolve().name
    shutil.copytree(directory, copy, symlinks=True)
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
