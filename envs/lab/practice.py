"""Made-up terminal tasks as Harbor task directories, to train and to evaluate on.

A task is solved when the files are in the state after its expert's command. Many tasks share a world, one
folder with the files of all of them, so few images are built.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from envs.lab.synthetic import Example

WORLD_TASKS = 24
"""Number of tasks that share a world."""

_DOCKERFILE = """\
FROM atropos-agent/base:debian12
WORKDIR /app
COPY files/ /app/
"""

_TOML = """\
schema_version = "1.4"

[metadata]
band = "terminal"
kind = "{kind}"
difficulty = "easy"
category = "file-operations"

[agent]
timeout_sec = 300

[verifier]
timeout_sec = 60

[environment]
network_mode = "no-network"
cpus = 1
memory_mb = 512
"""

_TEST = """\
#!/bin/sh
# Compares /app with what the reference leaves. It starts nothing of the agent's.
cd /tests && python3 -m unittest -q test_state && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
"""

_MODULE = """\
import pathlib
import unittest


def at(name):
    return pathlib.Path("/app", name)


def lines(name):
    text = at(name).read_text(encoding="utf-8", errors="replace").strip()
    return [line.strip().removeprefix("./") for line in text.splitlines()]


class State(unittest.TestCase):
"""


def write_tasks(examples: Iterable[Example], out: Path) -> list[Path]:
    """Write a task directory for each example, and return them.

    An example is left out if another task of the same world has its files, or if it would
    change nothing.
    """
    folders: list[Path] = []
    world: list[Example] = []
    taken: set[str] = set()
    for example in examples:
        names = _path_names(example)
        if not names & taken:
            world.append(example)
            taken |= names
        if len(world) == WORLD_TASKS:
            folders += _write_world(world, out)
            world, taken = [], set()
    return folders + _write_world(world, out)


def _path_names(example: Example) -> set[str]:
    """Return every name in a path of the example's, before or after its command, without the one common to many
    folders."""
    before, after = _run_example(example, example.files)
    return {part for path in [*before, *after] for part in path.split("/")} - {"README"}


def _run_example(example: Example, files: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the files before and after the example's command."""
    with tempfile.TemporaryDirectory() as place:
        _write_files(Path(place), files)
        before = _read_state(Path(place))
        subprocess.run(["sh", "-c", example.command], cwd=place, check=True, capture_output=True)
        return before, _read_state(Path(place))


def _write_world(world: Sequence[Example], out: Path) -> list[Path]:
    files = {name: text for example in world for name, text in example.files.items()}
    folders = []
    for example in world:
        before, after = _run_example(example, files)
        if after == before:
            continue
        digest = hashlib.sha256(f"{example.instruction}{sorted(files)}".encode()).hexdigest()[:8]
        folder = out / f"{example.kind.replace('_', '-')}-{digest}"
        _write_files(folder / "environment/files", files)
        expected = {**dict.fromkeys(before.keys() - after.keys()), **after}
        for name, text in {
            "task.toml": _TOML.format(kind=example.kind),
            "instruction.md": example.instruction,
            "environment/Dockerfile": _DOCKERFILE,
            "tests/test.sh": _TEST,
            "tests/test_state.py": _MODULE + "\n".join(_make_tests(expected)),
            "solution/solve.sh": f"#!/bin/sh\nset -e\ncd /app\n{example.command}\n",
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        folders.append(folder)
    return folders


def _make_tests(expected: Mapping[str, Any]) -> Iterator[str]:
    """Yield a test of each path, with its expected state as literals."""
    for number, (name, state) in enumerate(sorted(expected.items())):
        yield f"    def test_{number}(self):\n" + "".join(f"        {line}\n" for line in _make_asserts(name, state))


def _make_asserts(name: str, state: Mapping[str, Any] | None) -> Iterator[str]:
    if state is None:
        yield f"self.assertIs(at({name!r}).exists(), False)"
    elif state["kind"] == "link":
        yield f"self.assertIs(at({name!r}).is_symlink(), True)"
        target = str(PurePosixPath("/app", name).parent / state["target"])
        yield f"self.assertEqual(str(at({name!r}).resolve()), str(pathlib.Path({target!r}).resolve()))"
    elif state["kind"] == "directory":
        yield f"self.assertIs(at({name!r}).is_dir(), True)"
    else:
        if state["executable"]:
            yield f"self.assertNotEqual(at({name!r}).stat().st_mode & 0o111, 0)"
        wanted = [line.strip().removeprefix("./") for line in state["text"].strip().splitlines()]
        yield f"self.assertEqual(lines({name!r}), {wanted!r})"


def _write_files(place: Path, files: Mapping[str, str]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")


def _read_state(place: Path) -> dict[str, Any]:
    """Return everything below a folder, by relative path."""
    state: dict[str, Any] = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_symlink():
            state[name] = {"kind": "link", "target": str(path.readlink())}
        elif path.is_dir():
            state[name] = {"kind": "directory"}
        else:
            executable = bool(path.stat().st_mode & 0o111)
            state[name] = {"kind": "file", "text": path.read_text(encoding="utf-8"), "executable": executable}
    return state
