"""A forged task, written as a Harbor directory."""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.tasks.forge.mutations import Mutation
from envs.tasks.forge.project import Project
from envs.tasks.forge.suite import PYTEST_OPTIONS, WORKDIR
from sandboxes.docker.images.base_image import BASE_IMAGE

_INSIDE = Path(__file__).parent / "inside"
_DOCKERFILE = f"""\
FROM {BASE_IMAGE}
WORKDIR {WORKDIR}
ENV PYTHONPATH=@PATH@
COPY repo/ {WORKDIR}/
RUN git init -q -b main && git add -A -f . && git -c user.name=dev -c user.email=dev@example.org commit -q -m "Import"
"""


@dataclass(frozen=True, slots=True)
class Bug:
    """A module with one or more mutations planted. module: its path in the project."""

    module: str
    original: str
    mutated: str
    mutations: tuple[Mutation, ...]


@dataclass(frozen=True, slots=True)
class ForgedTask:
    """A task seen to be sound: bugs, the tests broken by them, and the tests still passing.

    fail_to_pass: test ids, with pytest's text for each failure. files: the test module of each id.
    duration_s: of the whole suite, unbroken.
    """

    project: Project
    bugs: tuple[Bug, ...]
    fail_to_pass: Mapping[str, str]
    pass_to_pass: tuple[str, ...]
    files: Mapping[str, str]
    duration_s: float

    @property
    def id(self) -> str:
        """Return the project's name and a digest of the mutated modules."""
        digest = hashlib.sha256("\0".join(f"{bug.module}\0{bug.mutated}" for bug in self.bugs).encode())
        return f"{self.project.name}-{digest.hexdigest()[:10]}"


def emit(task: ForgedTask, instruction: str, out: Path) -> Path:
    """Write the task's directory below `out`, in place of one with the same id. Return it."""
    project, directory = task.project, out / task.id
    shutil.rmtree(directory, ignore_errors=True)
    hidden = {task.files[name] for name in task.fail_to_pass}
    changed = {bug.module: bug for bug in task.bugs}
    secrets = {*((project.root / file).read_bytes() for file in hidden), *(bug.original.encode() for bug in task.bugs)}
    sizes = set(map(len, secrets))
    for file in project.files:
        source = project.root / file
        is_copy = source.stat().st_size in sizes and source.read_bytes() in secrets  # as in build/lib
        if file in hidden or (is_copy and file not in changed):
            continue
        made = copy(source, directory / "environment/repo" / file)
        if file in changed:
            made.write_bytes(changed[file].mutated.encode())
    for file in project.protected:
        copy(project.root / file, directory / "tests/suite" / file)
    path = f"{WORKDIR}/{project.import_path}".removesuffix("/.")
    _write(directory / "environment/Dockerfile", _DOCKERFILE.replace("@PATH@", path))
    _write(directory / "instruction.md", instruction)
    _write(directory / "task.toml", _make_task_toml(task))
    _write(directory / "solution/fix.patch", "".join(_reverse_patch(bug) for bug in task.bugs))
    _write(directory / "solution/solve.sh", "#!/bin/bash\nset -e\ngit apply /solution/fix.patch\n")
    lists = {"FAIL_TO_PASS": sorted(task.fail_to_pass), "PASS_TO_PASS": sorted(task.pass_to_pass)}
    _write(directory / "tests/tests.json", json.dumps(lists, indent=1) + "\n")
    _write(directory / "tests/test.sh", _make_test_script(task))
    return directory


def _make_test_script(task: ForgedTask) -> str:
    project = task.project
    listed = sorted({task.files[name] for name in [*task.fail_to_pass, *task.pass_to_pass]})
    values = {
        "@WORKDIR@": WORKDIR,
        "@ROOTS@": shlex.join(project.test_roots),
        "@PATH@": f"{WORKDIR}/{project.import_path}".removesuffix("/."),
        "@PYTEST@": shlex.join(["python3", "-m", "pytest", *PYTEST_OPTIONS, *listed]),
    }
    script = (_INSIDE / "test.sh").read_text(encoding="utf-8")
    for mark, value in values.items():
        script = script.replace(mark, value)
    return script


def _make_task_toml(task: ForgedTask) -> str:
    operators = sorted(mutation.operator for bug in task.bugs for mutation in bug.mutations)
    broken = len(task.fail_to_pass)
    return f"""\
schema_version = "1.4"

[metadata]
band = "forged"
kind = {json.dumps(task.project.name)}
difficulty = "{"easy" if len(operators) == 1 else "medium" if len(operators) == 2 else "hard"}"
category = "software-engineering"
operators = {json.dumps(operators)}
modules = {json.dumps([bug.module for bug in task.bugs])}
fail_to_pass = {broken}
pass_to_pass = {len(task.pass_to_pass)}

[agent]
timeout_sec = 900

[verifier]
timeout_sec = {max(60, round(task.duration_s * 10))}

[environment]
network_mode = "no-network"
cpus = 1
memory_mb = 1024
"""


def _reverse_patch(bug: Bug) -> str:
    lines = difflib.unified_diff(
        _lines(bug.mutated), _lines(bug.original), f"a/{bug.module}", f"b/{bug.module}", lineterm="\n"
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> Sequence[str]:
    """Split text into lines, at LF alone, as git does."""
    return text.replace("\n", "\n\0").removesuffix("\0").split("\0")


def copy(source: Path, target: Path) -> Path:
    """Copy a file with its executable bit, and return the copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    return target


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
