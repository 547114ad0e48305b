"""The Harbor task directory of an adapter, and its `task.toml`."""

from __future__ import annotations

import glob
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from envs.tasks.adapters.patches import read_patch
from envs.tasks.harbor import load_task
from envs.types import BadTask, Task

INSIDE = Path(__file__).parent / "inside"
"""Files of converted tasks for the verifier's sandbox."""
TEST_FOLDERS = frozenset({"tests", "Tests", "test", "Test", "testing"})


def write_task(out: Path, task_id: str, files: Mapping[str, str | bytes | Path]) -> Task:
    """Write a Harbor directory, in place of one with the same id, and read it.

    files: text, bytes, or a file or directory to copy, by path in the task directory. Text named *.patch must be
    readable by git; errors of form alone are mended. Raises BadTask.
    """
    directory = out / re.sub(r"[^A-Za-z0-9._-]+", "-", task_id).strip("-.")
    patched = {
        name: read_patch(content, f"{task_id}: {name}").text
        for name, content in files.items()
        if isinstance(content, str) and name.endswith(".patch")
    }
    shutil.rmtree(directory, ignore_errors=True)
    for name, content in {**files, **patched}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            if content.is_dir():
                shutil.copytree(content, path, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(content, path)
        else:
            path.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
    return load_task(directory)


def apart(source: Path, out: Path) -> None:
    """Raise BadTask if a converted task could be written over the directory that it is made of."""
    one, other = source.resolve(), out.resolve()
    if source.is_dir() and (one.is_relative_to(other) or other.is_relative_to(one)):
        raise BadTask(f"{out} is {source}, in it or around it: tasks could be written over; give another --out")


def config(
    kind: str,
    *,
    timeout_s: float = 600,
    memory_mb: int = 1024,
    protected: Iterable[str] = (),
    folders: Iterable[str] = (),
    tags: Sequence[str] = (),
) -> str:
    """Return a `task.toml`.

    timeout_s: of the verifier. protected: as in `Hidden`, but paths; folders: with all below them.
    """
    kept = sorted([*map(glob.escape, set(protected)), *(f"{glob.escape(folder)}/*" for folder in set(folders))])
    more = f"tags = {json.dumps(tags)}\n" if tags else ""
    more += f"protected_paths = {json.dumps(kept)}\n" if kept else ""
    return (
        f'schema_version = "1.4"\n\n[metadata]\nband = "adapted"\nkind = {json.dumps(kind)}\n{more}\n'
        f"[verifier]\ntimeout_sec = {timeout_s}\n\n"
        f'[environment]\nnetwork_mode = "no-network"\nmemory_mb = {memory_mb}\n'
    )


def test_folder(path: str) -> str:
    """Return the innermost folder of tests around a path, "" without one."""
    folders = path.split("/")[:-1]
    last = max((at for at, folder in enumerate(folders, 1) if folder in TEST_FOLDERS), default=0)
    return "/".join(folders[:last])
