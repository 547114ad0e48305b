"""Rows of SWE-bench and of sets with its fields.

| field (first that is present) | becomes |
|---|---|
| `instance_id` | `Task.id` |
| a field with a row in it, also as JSON (NeMo Gym) | the row |
| `problem_statement` | the instruction |
| `interface` | after it: the names that hidden tests call, in SWE-rebench V2 |
| `image`, `docker_image`, `image_name`, `image_url` | the image; absent: the family's naming rule, see `FAMILIES` |
| `patch` | the reference; SWE-smith: the BUG, applied to the image, whose reverse is the reference |
| `test_patch` | applied by the verifier to the image's tree, before the agent's changes |
| `FAIL_TO_PASS`, `PASS_TO_PASS`, also in lower case, lists or JSON | what must be seen to pass |
| `eval_script` | what it exports, and its conda environment, hold when the tests run |
| `test_cmds`, `log_parser`, `install_config`, ... | see `printed`; else not used |
| `hints_text`, `created_at`, `difficulty`, `base_commit`, ... | not used: the image is at its commit |

`repo` is at /testbed, in the images of SWE-rebench V2 at /NAME (`workdir` overrides), Python in conda's
`testbed`, in `.venv` or in PATH. The image gets one layer: `.venv` moved out of the agent's reach (the verifier uses
it), history squashed to one commit without remotes, no bytecode or test caches. The files of the listed tests, and
every file in `test_patch`, are protected: the agent's changes of them are not carried over. All other files in their
folders of tests (`tests/` and the like) are protected too, for tests may import them, unless the reference changes
them.

Judged by pytest's or unittest's report, never by printed text. Django's ids (`test (module.Class)`, or the
first line of a docstring, as its runner prints it) and sympy's (a function's name) are looked for in the files of
`test_patch`; the image needs no pytest for them. Rows of other languages are refused, unless
`printed_results` allows a verdict by their tests' output, see `printed.py`; such tasks have the
tag `printed-results`. An id cut at a blank by SWE-bench (`test[a` of `test[a b]`) stands for all tests with this
beginning: each must pass. One with a shortened path (`test[/c]` of `test[/a/b/c]`) stands for all with such a path.
SWE-bench lists expected failures as passing; they count as passed if the test's own mark has no condition.
SWE-smith's failing tests stay visible to the agent, since the rows don't carry them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envs.tasks.adapters.dataset_rows import Row, convert_rows
from envs.tasks.adapters.directory import make_task_toml, test_folder, write_task
from envs.tasks.adapters.eval_script import conda_environment, exports
from envs.tasks.adapters.patches import Patch
from envs.tasks.adapters.printed import has_known_parser, printed_verifier
from envs.tasks.adapters.script import pytest_verifier, unittest_verifier
from envs.types import BadTask, Task

FAMILIES: dict[str, Callable[[str], str]] = {
    "swebench": lambda name: f"swebench/sweb.eval.x86_64.{name.lower().replace('__', '_1776_')}:latest",
    "swegym": lambda name: f"xingyaoww/sweb.eval.x86_64.{name.lower().replace('__', '_s_')}:latest",
    "live": lambda name: f"starryzhang/sweb.eval.x86_64.{name.lower().replace('__', '_1776_')}:latest",
}
"""The name of an instance's image in each set, for rows without one."""

MOVE_OUT = "if [ -e .venv/bin/python ]; then mv .venv /opt/venv && ln -s /opt/venv .venv; fi"
"""Shell commands to move an interpreter out of the source tree, so the agent can't replace the verifier's."""
PATH = "ENV PATH=/opt/miniconda3/envs/testbed/bin:/opt/conda/envs/testbed/bin:/opt/venv/bin:$PATH"
"""The interpreters of such images, for a Dockerfile: conda's, or the one moved by `MOVE_OUT`."""
SQUASH = (
    "find . '(' -name .git -o -name __pycache__ -o -name .pytest_cache ')' -prune -exec rm -rf {} + "
    "&& git init -q -b main && git add -A -f . "
    "&& git -c user.name=dev -c user.email=dev@example.org commit -q -m Import"
)
"""Shell commands to reduce the working directory and its submodules to one commit: no history, no caches."""
_PROGRESS = ("[100%]", "[")
"""SWE-bench's parser takes pytest's `PASSED   [100%]` and `PASSED   [ 98%]` for tests of these names."""
_PATCH = "git apply /tests/test.patch || exit 1"
_METHOD = re.compile(r"(?P<name>\w+) \((?P<case>[\w.]+)\)")
_NODE_ID = re.compile(r"[^\s:\[]+\.py::[^\s\[]+(\[.*\]|\[\S*)?", re.DOTALL)


def load(path: Path, out: Path, family: str = "swebench", *, printed_results: bool = False) -> list[Task]:
    """Convert every row into a task directory below `out`.

    family: a key of `FAMILIES`, or "smith" (its `patch` is the bug). printed_results: judge unwatched tests by their
    output. Raises BadTask, or one BadTasks with all unusable rows.
    """
    if family != "smith" and family not in FAMILIES:
        raise BadTask(f"there is no family {family!r}; known are smith, {', '.join(FAMILIES)}")
    return convert_rows(path, out, lambda row, folder: _convert(_unwrap(row), folder, family, printed_results))


def _unwrap(row: Row) -> Row:
    """Return the row, or the one inside: rows of NeMo Gym have it in a field, also as JSON."""
    left: list[Any] = [row.values]
    for text in left:  # grows
        value = text
        if isinstance(text, str) and text.startswith("{"):
            with suppress(ValueError, RecursionError):
                value = json.loads(text)
        if isinstance(value, Mapping):
            if {"instance_id", "patch"} <= value.keys():
                return replace(row, values=value)
            left += value.values()
    return row


def _convert(row: Row, out: Path, family: str, printed_results: bool) -> Path:
    instance = _read_instance(row, family)
    verifier = _choose_verifier(instance, printed_results)
    smith = family == "smith"
    tree: dict[str, str | bytes | Path] = {
        "task.toml": make_task_toml(
            family,
            timeout_s=1800,
            memory_mb=4096,
            protected=[*verifier.files, *instance.patched_paths, "tox.ini", ".venv"],
            folders=_support_folders(verifier.files, instance.patch.paths),
            tags=["printed-results"] if verifier.printed else [],
        ),
        "instruction.md": _make_instruction(row),
        "environment/Dockerfile": _make_dockerfile(instance, verifier.printed, smith),
        "solution/fix.patch": instance.patch.text,
        "solution/solve.sh": f"#!/bin/bash\nset -e\ngit apply {'-R ' if smith else ''}/solution/fix.patch\n",
    }
    if smith:
        tree["environment/bug.patch"] = instance.patch.text
    if instance.test_patch.text:
        tree["tests/test.patch"] = instance.test_patch.text
    return write_task(out, instance.id, {**tree, **verifier.tree})


@dataclass(frozen=True, slots=True)
class _Instance:
    """A row's fields."""

    row: Row
    id: str
    image: str
    workdir: str
    patch: Patch
    test_patch: Patch
    fail_to_pass: list[str]
    pass_to_pass: list[str]

    @property
    def listed_tests(self) -> list[str]:
        """Return every test to be seen to pass."""
        return [*self.fail_to_pass, *self.pass_to_pass]

    @property
    def patched_paths(self) -> Sequence[str]:
        """Return the paths touched by the tests' patch."""
        return self.test_patch.paths

    def in_tree(self, files: Sequence[str]) -> list[str]:
        """Return the modules of tests in the tree. files: those of the listed tests."""
        return sorted({*files, *filter(_is_python_test, self.patched_paths)})

    @property
    def exports(self) -> list[str]:
        """Return the shell commands to set the tests' own environment."""
        return exports(self.row.text("eval_script", default=""))

    def bad_task(self, why: str) -> BadTask:
        """Return the error with the row's name."""
        return BadTask(f"{self.row.where}: {self.id}: {why}")


@dataclass(frozen=True, slots=True)
class _Verifier:
    """The verifier's parts of a row. files: the tests'. tree: `tests/`, by path in the task directory."""

    files: list[str]
    tree: dict[str, str]
    printed: bool = False


def _read_instance(row: Row, family: str) -> _Instance:
    if "expected_output_json" in row.values:
        raise BadTask(f"{row.where}: this is a row of R2E-Gym; convert it as r2e-gym")
    task_id = row.text("instance_id")
    naming = FAMILIES.get(family)
    default = naming(task_id) if naming is not None else None
    image = row.line("image", "docker_image", "image_name", "image_url", default=default)
    found = _Instance(
        row,
        task_id,
        image,
        workdir=row.line("workdir", default=_find_workdir(row, image)),
        patch=row.patch("patch"),
        test_patch=row.patch("test_patch", default=""),
        fail_to_pass=_strip_progress(row.texts("FAIL_TO_PASS", "fail_to_pass")),
        pass_to_pass=_strip_progress(row.texts("PASS_TO_PASS", "pass_to_pass")),
    )
    if not found.fail_to_pass:
        raise BadTask(f"{row.where}: {task_id} has no FAIL_TO_PASS; doing nothing would solve it")
    return found


def _strip_progress(tests: Sequence[str]) -> list[str]:
    return [test for test in tests if test not in _PROGRESS]


def _choose_verifier(instance: _Instance, printed_results: bool) -> _Verifier:
    """Choose the test runner by the tests' ids. Raises BadTask for ids without a test."""
    wanted, workdir = instance.fail_to_pass, instance.workdir
    if any(map(_NODE_ID.fullmatch, wanted)):
        for test in instance.listed_tests:
            if not _NODE_ID.fullmatch(test):
                raise instance.bad_task(f"{test!r} is not a pytest node id, so it can't be found")
        files = sorted({test.partition("::")[0] for test in instance.listed_tests})
        options = f"--rootdir {shlex.quote(workdir)} -rN"
        tree = pytest_verifier(
            wanted,
            instance.pass_to_pass,
            files=sorted(set(map(_pytest_argument, instance.listed_tests))),
            workdir=workdir,
            options=options,
            plugins=True,
            exports=instance.exports,
            in_tree=instance.in_tree(files),
        )
        return _Verifier(files, tree)
    if not _prints_results(instance):
        return _unittest_verifier(instance)
    if not printed_results:
        raise instance.bad_task(
            f"FAIL_TO_PASS: {wanted[0]!r} is neither pytest's nor unittest's, and other runners only print results, "
            "as what they test could do too; --printed-results takes them for true"
        )
    prepare = _PATCH if instance.test_patch.text else ""
    tree = printed_verifier(instance.row, instance.listed_tests, workdir=workdir, prepare=prepare)
    return _Verifier([*instance.patched_paths], tree, printed=True)


def _pytest_argument(test: str) -> str:
    """Return pytest's argument to run a test: its module, or the data file in `m.py::Suite::check.test::name`."""
    *parts, _ = test.partition("[")[0].split("::")
    data = next((at for at, part in enumerate(parts) if at and "." in part), 0)
    return "::".join(parts[: data + 1])


def _unittest_verifier(instance: _Instance) -> _Verifier:
    """Return the verifier of a row with unittest's ids, or names of functions. Raises BadTask."""
    ids, django = instance.listed_tests, instance.row.text("repo", default="") == "django/django"
    methods = {test: found for test in ids if (found := _METHOD.fullmatch(test))}
    odd = next((test for test in ids if not (methods or test.isidentifier())), None)
    if odd is not None:
        known = "neither pytest's (file.py::test), nor unittest's (test (module.Class)), nor a function's name"
        raise instance.bad_task(f"{odd!r} is {known}, so it can't be found")
    files = sorted(set(filter(_is_python_test, instance.patched_paths)))
    if not files:
        raise instance.bad_task("test_patch names no file of tests")
    named = {test: _node_id(found, files, django) for test, found in methods.items()}
    everything = sorted({*files, *(name.partition("::")[0] for name in named.values())})
    command = ""
    if django:
        labels = [file.removeprefix("tests/").removesuffix(".py").replace("/", ".") for file in files]
        command = f"python3 tests/runtests.py --verbosity 2 --settings test_sqlite --parallel 1 {shlex.join(labels)}"
    tree = unittest_verifier(
        [named.get(test, test) for test in instance.fail_to_pass],
        [named.get(test, test) for test in instance.pass_to_pass],
        files=everything if command else files,
        command=command,
        workdir=instance.workdir,
        exports=instance.exports,
        in_tree=instance.in_tree(everything),
    )
    return _Verifier(everything, tree)


def _node_id(method: re.Match[str], files: Sequence[str], django: bool) -> str:
    """Return pytest's node id of unittest's `test (module.Class)`."""
    *module, case = method["case"].removesuffix(f".{method['name']}").split(".")
    path = "/".join(module) + ".py"
    file = next((file for file in files if f"/{file}".endswith(f"/{path}")), None)
    # Django's tests are imported from within their folder.
    return f"{file or (f'tests/{path}' if django else path)}::{case}::{method['name']}"


def _make_instruction(row: Row) -> str:
    problem, names = row.text("problem_statement"), row.text("interface", default="")
    return (
        f"{problem}\n\nTests call this interface:\n\n{names}\n"
        if names and "No new interfaces" not in names
        else problem
    )


def _make_dockerfile(instance: _Instance, printed: bool, smith: bool) -> str:
    planted = "git apply /tmp/bug.patch && rm -rf /tmp/bug.patch build/lib* && " if smith else ""  # built unbroken
    conda = conda_environment(instance.row.text("eval_script", default="")) or "testbed"
    path = PATH.replace("/testbed/", f"/{conda}/")
    layer = [f"RUN {planted}{SQUASH}"] if printed else [f"RUN {planted}{MOVE_OUT} && {SQUASH}", path]
    copy = ["COPY bug.patch /tmp/bug.patch"] if smith else []
    return "\n".join([f"FROM {instance.image}", f"WORKDIR {instance.workdir}", *copy, *layer]) + "\n"


def _find_workdir(row: Row, image: str) -> str:
    repo = row.text("repo", default="").rpartition("/")[2]
    of_v2 = "log_parser" in str(row.values.get("install_config")) and "sweb.eval." not in image
    return f"/{repo}" if repo and of_v2 else "/testbed"


def _prints_results(instance: _Instance) -> bool:
    """Return whether a row without node ids has tests for neither pytest nor unittest."""
    python = any(map(_is_python_test, instance.patched_paths)) or any(map(_METHOD.fullmatch, instance.listed_tests))
    return has_known_parser(instance.row) or not python


def _is_python_test(path: str) -> bool:
    return path.endswith(".py") and "test" in path.rpartition("/")[2]


def _support_folders(files: Sequence[str], touched: Sequence[str]) -> set[str]:
    """Return the folders of the listed tests, without those changed by the reference."""
    folders = {test_folder(file) for file in files} - {""}
    return {folder for folder in folders if not any(path.startswith(folder + "/") for path in touched)}
