"""The `tests/` of converted tasks: a script to run the tests, and the list of tests to pass."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from envs.tasks.adapters.directory import INSIDE

OWN_TESTS = "-c /dev/null --noconftest --rootdir /tests"
"""Options for tests in /tests alone, without the repository's configuration."""
_PYTEST = "python3 -m pytest -p no:cacheprovider --tb=short -q --continue-on-collection-errors"


def pytest_verifier(
    fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str],
    *,
    files: Sequence[str],
    workdir: str,
    options: str,
    prepare: str = "",
    import_path: Sequence[str] | None = None,
    plugins: bool = False,
    functions: bool = False,
    exact: Mapping[str, str] | None = None,
    exports: Sequence[str] = (),
    in_tree: Sequence[str] = (),
) -> dict[str, str]:
    """Return `tests/test.sh` and `tests/tests.json`, by path in the task directory.

    files: pytest's arguments, run from `workdir`. prepare: shell commands as root before it.
    import_path: added to the tests' import path; None for `workdir`.
    plugins: use pytest's plugins in the image.
    functions: an id may stand for every case of a parametrised test.
    exact: tests that must not pass, each with its required end ("failed" or "error"); then no test beside the listed
        ones may pass or fail either.
    exports: shell commands to set the tests' own environment.
    in_tree: modules of tests in the working directory; the verifier applies `tests/test.patch` to them first.
    """
    environment = "" if plugins else " PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
    environment += "".join(f"\n{line}" for line in exports)
    path = ":".join([workdir] if import_path is None else import_path)
    lists: dict[str, object] = {
        "FAIL_TO_PASS": [*fail_to_pass],
        "PASS_TO_PASS": [*pass_to_pass],
        "FUNCTIONS": functions,
    }
    if exact is not None:
        lists["EXACT"] = exact
    if in_tree:
        lists["IN_TREE"] = [*in_tree]
    return {
        "tests/test.sh": _make_test_script(
            workdir, f"{_PYTEST} {options} {shlex.join(files)}", prepare, path, environment
        ),
        "tests/tests.json": json.dumps(lists, indent=1) + "\n",
    }


def unittest_verifier(
    fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str],
    *,
    files: Sequence[str],
    command: str = "",
    workdir: str,
    exports: Sequence[str] = (),
    in_tree: Sequence[str] = (),
) -> dict[str, str]:
    """Return `tests/test.sh`, `tests/tests.json` and, without a command, a runner, by path in the task directory.

    fail_to_pass, pass_to_pass: node ids as pytest's, titles (the first line of a docstring), or names of functions.
    files: the tests' paths. command: runs a Python script with the tests by unittest; absent: `unittests.py`.
    in_tree: as for `pytest_verifier`.
    """
    lists = {"FAIL_TO_PASS": [*fail_to_pass], "PASS_TO_PASS": [*pass_to_pass], "UNITTEST": [*files]}
    if in_tree:
        lists["IN_TREE"] = [*in_tree]
    tree = {"tests/tests.json": json.dumps(lists, indent=1) + "\n"}
    if not command:
        command = f"python3 /tests/unittests.py {shlex.join(files)}"
        tree["tests/unittests.py"] = (INSIDE / "unittests.py").read_text(encoding="utf-8")
    environment = "".join(f"\n{line}" for line in exports)
    return {**tree, "tests/test.sh": _make_test_script(workdir, command, "", workdir, environment)}


def _make_test_script(workdir: str, command: str, prepare: str, path: str, environment: str = "") -> str:
    script = (INSIDE / "test.sh").read_text(encoding="utf-8")
    for mark, value in {
        "@WORKDIR@": shlex.quote(workdir),
        "@PREPARE@": prepare,
        "@PATH@": shlex.quote(path),
        "@ENVIRONMENT@": environment,
        "@COMMAND@": command,
    }.items():
        script = script.replace(mark, value)
    return script
