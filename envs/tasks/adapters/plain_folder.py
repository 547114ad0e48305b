"""A plain folder: a repository, its hidden tests, and an instruction.

| file | becomes |
|---|---|
| `instruction.md` or `README.md` | the instruction |
| `repo/` | /app in the base image, or what `Dockerfile` makes of it (its build context is the folder) |
| `tests/` | the hidden tests, run by pytest in /tests; the repository is importable |
| `tests.json` with FAIL_TO_PASS and PASS_TO_PASS | the tests that must be seen to pass; absent: every test function |
| `solution.patch`, or `solution/` with files | the reference: a patch of `repo/`, or files that replace its own |

Without `tests.json` the test functions are found by reading the modules in `tests/`; each must pass in
all its cases. Tests made at run time (by a fixture, by inherited test classes) are not found:
list them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypeGuard

from envs.tasks.adapters.dataset_rows import Row
from envs.tasks.adapters.directory import check_separate, convert_each, make_task_toml, parsing_python, write_task
from envs.tasks.adapters.script import OWN_TESTS, pytest_verifier
from envs.tasks.task_folders import check_links
from envs.types import BadTask, Task
from sandboxes.docker.images.base_image import BASE_IMAGE

_DOCKERFILE = f"FROM {BASE_IMAGE}\nWORKDIR /app\nCOPY repo/ /app/\n"


def load(folder: Path, out: Path) -> list[Task]:
    """Convert the folder, or each folder in it, into task directories below `out`.

    Raises one BadTasks with all unusable ones."""
    folders = [folder] if (folder / "repo").is_dir() else sorted(path.parent for path in folder.glob("*/repo/"))
    if not folders:
        raise BadTask(f"{folder} holds no repo/; a plain task is a folder with repo/, tests/ and instruction.md")
    check_separate(folder, out)
    named = ((f"task {one.resolve().name}", partial(_convert, one, folder)) for one in folders)
    return convert_each(named, out, "task", str(folder))


def _convert(folder: Path, root: Path, out: Path) -> Path:
    check_links(folder, root)
    name = folder.resolve().name
    instruction = next((folder / f for f in ("instruction.md", "README.md") if (folder / f).is_file()), None)
    if instruction is None:
        raise BadTask(f"task {name}: instruction.md is missing; write there what is to be done")
    modules = sorted(
        path
        for path in (folder / "tests").rglob("*.py")
        if path.name.startswith("test_") or path.stem.endswith("_test")
    )
    if not modules:
        raise BadTask(f"task {name}: tests/ holds no test_*.py")
    listing = folder / "tests.json"
    if listing.is_file():
        row = Row(_read_object(listing), f"{name}/tests.json")
        wanted, kept, functions = row.texts("FAIL_TO_PASS"), row.texts("PASS_TO_PASS"), False
    else:
        wanted = [test for module in modules for test in _test_ids(module, folder / "tests")]
        kept, functions = [], True
    if not wanted:
        raise BadTask(f"task {name}: no test is listed or found, so nothing could be judged")
    own = folder / "Dockerfile"
    files: dict[str, str | bytes | Path] = {
        "task.toml": make_task_toml("folder"),
        "instruction.md": instruction,
        "environment/Dockerfile": own if own.is_file() else _DOCKERFILE,
        "environment/repo": folder / "repo",
        "tests": folder / "tests",
        **_solution_files(folder),
    }
    paths = ["/app/src", "/app"] if (folder / "repo/src").is_dir() else ["/app"]
    run = [f"/tests/{module.relative_to(folder / 'tests').as_posix()}" for module in modules]
    options = OWN_TESTS.replace("--noconftest ", "")  # conftest.py in tests/ is as hidden as they are
    verifier = pytest_verifier(
        wanted, kept, files=run, workdir="/app", options=options, import_path=paths, functions=functions
    )
    return write_task(out, name, {**files, **verifier})


def _solution_files(folder: Path) -> dict[str, str | bytes | Path]:
    """Return the files of the task's solution: a patch, or replacements of files; none without a solution."""
    if (folder / "solution.patch").is_file():
        solve = "#!/bin/bash\nset -e\npatch -p1 < /solution/solution.patch\n"
        patch = (folder / "solution.patch").read_bytes().decode("utf-8", "surrogateescape")
        return {"solution/solution.patch": patch, "solution/solve.sh": solve}
    if (folder / "solution").is_dir():
        solve = "#!/bin/bash\nset -e\ncp -R /solution/files/. .\n"
        return {"solution/files": folder / "solution", "solution/solve.sh": solve}
    return {}


def _read_object(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadTask(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadTask(f"{path} must hold an object with FAIL_TO_PASS and PASS_TO_PASS")
    return found


def _test_ids(module: Path, root: Path) -> Iterator[str]:
    with parsing_python(str(module)):
        tree = ast.parse(module.read_bytes())
    file = module.relative_to(root).as_posix()
    for node in tree.body:
        if _is_test(node):
            yield f"{file}::{node.name}"
        elif isinstance(node, ast.ClassDef) and _is_test_class(node):
            for method in node.body:
                if _is_test(method):
                    yield f"{file}::{node.name}::{method.name}"


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Tell whether a statement defines a test: fixtures may be named so, too."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test"):
        return False
    return not any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_test_class(node: ast.ClassDef) -> bool:
    return node.name.startswith("Test") or any("TestCase" in ast.unparse(base) for base in node.bases)
