"""R2E-Gym rows.

| field | becomes |
|---|---|
| `repo_name`, `commit_hash` | `Task.id` |
| `problem_statement` | the instruction, without its [ISSUE] marks; never `prompt`, which quotes the fix |
| `docker_image` | the image |
| `parsed_commit_content` | the reference: what the commit changes in Python files that are no tests |
| `execution_result_content` | `test_file_names` and `test_file_codes`: the hidden tests, run in `r2e_tests/` |
| `expected_output_json` | the status that each of them must have |
| `modified_files`, `relevant_files`, `num_*`, ... | not used |

A reward needs the listed status of every named test, and no other test may pass or fail; skipped ones are not
counted, as in R2E-Gym. Its names (`Class.test`, `test[case]`) carry no file; a row is refused if a name fits no hidden
file. pytest's report judges all, also in place of R2E-Gym's unittest, without the repository's own `addopts`
(parallel workers, tests run again). A row is refused if its hidden tests import a missing file beside them.

The image has its tests, the script that runs them, at times records about the fix, and the later history on board; one
layer takes them out.
The repository's test support, if imported by the hidden tests, is protected.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envs.tasks.adapters.dataset_rows import Row, convert_rows
from envs.tasks.adapters.directory import TEST_FOLDERS, make_task_toml, parsing_python, test_folder, write_task
from envs.tasks.adapters.script import pytest_verifier
from envs.tasks.adapters.swebench import MOVE_OUT, PATH, SQUASH
from envs.types import BadTask, Task

_FOLDER = "r2e_tests"
_ON_BOARD = (
    *(_FOLDER, "run_tests.sh", "syn_issue.json", "expected_test_output.json", "execution_result.json"),
    *("parsed_commit.json", "modified_files.json", "modified_entities.json"),
)
"""Names of tests and of records about the fix, in the tree, / or /root: R2E-Gym's images of several times have them."""
_HIDE = f"rm -rf {' '.join(f'{folder}{name}' for name in _ON_BOARD for folder in ('', '/', '/root/'))}"
_PLACE = f"rm -rf {_FOLDER} && cp -R /tests/suite/{_FOLDER} {_FOLDER} || exit 1\nexport QT_QPA_PLATFORM=minimal"
_STATUSES = ("PASSED", "FAILED", "ERROR")
_PRINTED = re.compile(r"^PASSED \S+?::(.+?)\s*$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_TEST_FOLDERS = TEST_FOLDERS - {"testing"}  # R2E-Gym's rule: numpy.testing and the like are sources
_MARKS = {"context": " ", "added": "+", "deleted": "-", "note": "\\ "}


def load(path: Path, out: Path) -> list[Task]:
    """Convert every row into a task directory below `out`. Raises BadTask, or one BadTasks for all bad rows."""
    return convert_rows(path, out, _convert)


def _convert(row: Row, out: Path) -> Path:
    task_id = f"{row.text('repo_name')}__{row.text('commit_hash')[:12]}"
    where = f"{row.where}: {task_id}"
    problem = row.text("problem_statement")
    issue = re.search(r"\[ISSUE\](.*)\[/ISSUE\]", problem, re.DOTALL)
    run = row.table("execution_result_content")
    tests = _hidden_files(run, where)
    modules = {name: code for name, code in tests.items() if name.startswith("test") and name.endswith(".py")}
    expected = _expected_statuses(row.table("expected_output_json"), modules, where)
    passing = [test for test, status in expected.items() if status == "PASSED"]
    before = {
        _strip_message(name) for name in _PRINTED.findall(_COLOUR.sub("", str(run.get("old_commit_res_stdout") or "")))
    }
    wanted = [test for test in passing if ".".join(test.split("::")[1:]) not in before]
    if not wanted:
        raise BadTask(f"{where}: no test passes only after the fix; doing nothing would solve it")
    verifier = pytest_verifier(
        wanted,
        [test for test in passing if test not in wanted],
        exact={test: status.lower() for test, status in expected.items() if status != "PASSED"},
        files=[f"{_FOLDER}/{name}" for name in modules],
        workdir="/testbed",
        options="--rootdir /testbed -rN -o addopts=",
        prepare=_PLACE,
        plugins=True,
    )
    layer = f"{_HIDE} && {MOVE_OUT} && {SQUASH}"
    files: dict[str, str | bytes | Path] = {
        "task.toml": make_task_toml(
            "r2e-gym",
            timeout_s=1800,
            memory_mb=4096,
            protected=[_FOLDER, ".venv", "tox.ini"],
            folders=_support_folders(_parse(code, name, where) for name, code in tests.items() if name.endswith(".py")),
        ),
        "instruction.md": (issue[1] if issue else problem).strip() + "\n",
        "environment/Dockerfile": (f"FROM {row.line('docker_image')}\nWORKDIR /testbed\nRUN {layer}\n{PATH}\n"),
        "solution/fix.patch": _reference_patch(row.table("parsed_commit_content"), where),
        "solution/solve.sh": "#!/bin/bash\nset -e\ngit apply --whitespace=fix /solution/fix.patch\n",
        **{f"tests/suite/{_FOLDER}/{name}": code for name, code in tests.items()},
    }
    return write_task(out, task_id, {**files, **verifier})


def _hidden_files(run: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the hidden files by name. Raises BadTask, also when they import a missing file."""
    names, codes = run.get("test_file_names"), run.get("test_file_codes")
    if not names or not isinstance(names, list) or not isinstance(codes, list) or len(names) != len(codes):
        raise BadTask(f"{where}: execution_result_content must have as many test_file_codes as test_file_names")
    tests = dict(
        zip([str(name).removeprefix(f"{_FOLDER}/") for name in names], [str(code) for code in codes], strict=True)
    )
    for name, code in tests.items():
        if not re.fullmatch(r"[\w.-]+", name):
            raise BadTask(f"{where}: {name!r} is not the name of a test file")
        if not name.endswith(".py"):
            continue
        missing = [module for module in _sibling_modules(_parse(code, name, where)) if f"{module}.py" not in tests]
        if missing:
            raise BadTask(f"{where}: {name} imports {missing[0]}, which the row doesn't have")
    return tests


def _parse(code: str, name: str, where: str) -> ast.Module:
    with parsing_python(f"{where}: {name}"):
        return ast.parse(code)


def _sibling_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules imported by a hidden file from its own folder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")
            if node.level == 1:
                yield from module[:1] if module[0] else [alias.name for alias in node.names]
            elif node.level == 0 and module[0] == _FOLDER and len(module) > 1:
                yield module[1]


def _support_folders(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Yield the repository's own folders of tests with modules imported by hidden ones."""
    for tree in trees:
        for node in ast.walk(tree):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for module in modules:
                folder = test_folder(module.replace(".", "/") + "/")
                if folder.rpartition("/")[2] in _TEST_FOLDERS:
                    yield folder


def _expected_statuses(statuses: Mapping[str, Any], modules: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the status of each test by pytest's node id. Raises BadTask if a name fits no hidden file."""
    bound = {name: _bound_names(code, name, where) for name, code in modules.items()}
    found: dict[str, str] = {}
    for given, status in statuses.items():
        name = _strip_message(_COLOUR.sub("", given))
        head, bracket, case = name.partition("[")
        parts = head.split(".")
        files = [file for file, names in bound.items() if parts[0] in names]
        if status not in _STATUSES:
            raise BadTask(f"{where}: expected_output_json: {given!r} has the status {status!r}")
        if not files or (bracket and not case.endswith("]")):
            raise BadTask(f"{where}: expected_output_json: {given!r} is no test of {', '.join(modules) or 'the row'}")
        if len(files) > 1 and status != "PASSED":  # R2E-Gym saw one of them, and it isn't known which
            raise BadTask(f"{where}: expected_output_json: {given!r} may be in {' or '.join(files)}")
        found |= {"::".join([f"{_FOLDER}/{file}", *parts]) + bracket + case: status for file in files}
    return found


def _strip_message(name: str) -> str:
    """Return a printed name without the message after it."""
    short = name.split(" - ", maxsplit=1)[0]
    return short if "[" not in short or short.endswith("]") else name


def _bound_names(code: str, name: str, where: str) -> set[str]:
    with parsing_python(f"{where}: {name}"):
        symbols = symtable.symtable(code, name, "exec").get_symbols()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()}


def _reference_patch(commit: Mapping[str, Any], where: str) -> str:
    """Return the commit's patch of Python files other than tests. Raises BadTask."""
    try:
        patch = "".join(
            _file_patch(diff) for diff in commit["file_diffs"] if _is_source(diff["header"]["file"]["path"])
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BadTask(f"{where}: parsed_commit_content is not a parsed commit ({error!r})") from None
    if not patch:
        raise BadTask(f"{where}: the commit changes no Python file but tests, so there is no reference")
    return patch


def _is_source(path: str) -> bool:
    *folders, name = path.split("/")
    return name.endswith(".py") and not (
        name.startswith("test_") or name.endswith("_test.py") or _TEST_FOLDERS & set(folders)
    )


def _file_patch(diff: Mapping[str, Any]) -> str:
    path, extra = diff["header"]["file"]["path"], diff["header"].get("misc_line")
    lines = [f"diff --git a/{path} b/{path}", *([extra] if extra else [])]
    if diff.get("minus_file") and diff.get("plus_file"):
        lines += [f"--- {diff['minus_file']['path']}", f"+++ {diff['plus_file']['path']}"]
    for hunk in diff["hunks"]:
        old, new = (_range(hunk["descriptor"][side]) for side in ("old_range", "new_range"))
        lines.append(f"@@ -{old} +{new} @@")
        lines += [_MARKS[line["type"]] + line["content"] for line in hunk["line_group"]["all_lines"]]
    return "\n".join(lines) + "\n"


def _range(span: Mapping[str, Any]) -> str:
    return f"{span['start']}" if span.get("length") is None else f"{span['start']},{span['length']}"
