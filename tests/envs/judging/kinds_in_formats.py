"""All kinds of tests (`honest_kinds`) as the hidden tests of one task, in each format."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from honest_kinds import KINDS
from kind_texts import HEAD
from task_formats import HARBOR_TEST, folder_task, function_task, harbor_task, swebench_task, terminal_bench_task, write

from envs.types import Task

WRONG, RIGHT = ("def f(x):\n    return x\n", "def f(x):\n    return x + x\n")
SOLVE = f"cat > solution.py << 'END'\n{RIGHT}END\n"
_NOT_THERE = re.compile("hypothesis")
"""What the base image doesn't have."""
_OF_A_MODULE = ("NUMBER", "test_it)", "locals()", "skip", "def f(", "'''", '"""', "_getframe", "global ")
_NOT_PASSED = re.compile(r"skip|xfail|parametrised by nothing|parametrised with the same|def test_\w+\(cls")
"""Kinds that have more than tests that pass, or whose tests or ids differ between versions of pytest."""


def modules(folder: str = "", *, listed: bool = False, share: slice = slice(None)) -> dict[str, str]:
    """Return the modules, by path. listed: those alone of which each test passes. share: of the kinds, by number."""
    found = {}
    for number, (name, text) in [*enumerate(KINDS.items())][share]:
        if not _NOT_THERE.search(text) and not (listed and (_NOT_PASSED.search(text) or _NOT_PASSED.search(name))):
            found[f"{folder}test_kind_{number}.py"] = text.replace("NUMBER", str(number))
    return found


def passing(root: Path, solution: str = RIGHT, *, listed: bool = True, share: slice = slice(None)) -> list[str]:
    """Return the ids of the tests that pass with a solution, as pytest says without us."""
    write(root, {"solution.py": solution, **modules("tests/", listed=listed, share=share)})
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", "tests"]
    env = {"PYTHONPATH": ".", "PATH": "/usr/bin"}
    ran = subprocess.run(command, check=False, cwd=root, capture_output=True, text=True, env=env)
    return re.findall(r"^PASSED (.*)$", ran.stdout, re.MULTILINE)


def harbor(root: Path) -> Task:
    run = HARBOR_TEST.replace("/tests/test_outputs.py -rA", "/tests -q --import-mode=importlib")
    return harbor_task(root, WRONG, run.replace("cd /app\n", "cd /app\nexport PYTHONPATH=/app\n"), modules())


def tree(root: Path) -> Task:
    """Return a task whose tests are copied into the working directory and run without being named."""
    run = HARBOR_TEST.replace("/tests/test_outputs.py -rA", "-q")
    copied = "cd /app\nmkdir -p tests\ncp /tests/*.py tests/\nexport PYTHONPATH=/app\n"
    return harbor_task(root / "tree", WRONG, run.replace("cd /app\n", copied), modules())


def tb1(root: Path) -> Task:
    script = "export PYTHONPATH=/app\nuv run pytest $TEST_DIR -rA"
    return terminal_bench_task(root, WRONG, RIGHT, script, modules(listed=True))


def folder(root: Path) -> Task:
    kinds = modules("tests/", listed=True)
    return folder_task(root, WRONG, RIGHT, {path: text for path, text in kinds.items() if _are_all_found(text)})


def _are_all_found(text: str) -> bool:
    """Tell whether reading a module finds all of its tests, and each of them runs."""
    odd = ("class TestA", "__test__", "@classmethod")
    return text.count("def test_it") == 1 and not any(word in text for word in odd)


def swe(root: Path) -> Task:
    kinds = {path: ("", text) for path, text in modules("tests/", listed=True).items()}
    return swebench_task(root, WRONG, RIGHT, kinds, passing(root / "host"), [])


def functions(root: Path) -> Task:
    """Return a task of one function, whose check is made of the kinds that are bare statements."""
    check = "import pytest, unittest\ndef check(candidate):\n    f = candidate\n"
    for number, text in enumerate(KINDS.values()):
        if text.startswith(HEAD + "def test_it():\n") and not any(word in text for word in _OF_A_MODULE):
            body = text[len(HEAD) :]
            if len(ast.parse(body).body) == 1:
                check += "".join(f"    {line}\n" for line in body.replace("test_it", f"kind_{number}").splitlines())
                check += f"    kind_{number}()\n"
    return function_task(root, "f", "def f(x):\n", "    return x + x\n", check)


FORMATS: dict[str, Callable[[Path], Task]] = {
    "harbor": harbor,
    "tree": tree,
    "terminal-bench": tb1,
    "swebench": swe,
    "folder": folder,
    "functions": functions,
}
