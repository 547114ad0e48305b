"""All kinds of tests (`honest_kinds`) as the hidden tests of one task, in each format."""

from __future__ import annotations

import ast
import difflib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from honest_kinds import KINDS
from kind_texts import HEAD
from task_formats import DOCKERFILE, HARBOR_TEST, write

from envs.tasks.adapters import plain_folder, python_functions, swebench, terminal_bench
from envs.tasks.harbor import load_task
from envs.types import Task

WRONG, RIGHT = ("def f(x):\n    return x\n", "def f(x):\n    return x + x\n")
SOLVE = f"cat > solution.py << 'END'\n{RIGHT}END\n"
_NOT_THERE = re.compile("hypothesis")
"""What the base image doesn't have."""
_OF_A_MODULE = ("NUMBER", "test_it)", "locals()", "skip", "def f(", "'''", '"""', "_getframe", "global ")
_NOT_PASSED = re.compile(r"skip|xfail|parametrised by nothing|parametrised with the same|def test_\w+\(cls")
"""Kinds that have more than tests that pass, or whose tests or ids differ between versions of pytest."""


def modules(folder: str = "", *, listed: bool = False) -> dict[str, str]:
    """Return the modules, by path. listed: those alone of which each test passes."""
    found = {}
    for number, (name, text) in enumerate(KINDS.items()):
        if not _NOT_THERE.search(text) and not (listed and (_NOT_PASSED.search(text) or _NOT_PASSED.search(name))):
            found[f"{folder}test_kind_{number}.py"] = text.replace("NUMBER", str(number))
    return found


def passing(root: Path) -> list[str]:
    """Return the ids of the tests that pass with the right solution, as pytest says without us."""
    write(root, {"solution.py": RIGHT, **modules("tests/", listed=True)})
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", "tests"]
    env = {"PYTHONPATH": ".", "PATH": "/usr/bin"}
    ran = subprocess.run(command, check=False, cwd=root, capture_output=True, text=True, env=env)
    return re.findall(r"^PASSED (.*)$", ran.stdout, re.MULTILINE)


def harbor(root: Path) -> Task:
    run = HARBOR_TEST.replace("/tests/test_outputs.py -rA", "/tests -q --import-mode=importlib")
    files = {
        "task.toml": 'schema_version = "1.4"\n',
        "instruction.md": "Double it.",
        "environment/Dockerfile": DOCKERFILE.format("/app"),
        "environment/files/solution.py": WRONG,
        "tests/test.sh": run.replace("cd /app\n", "cd /app\nexport PYTHONPATH=/app\n"),
        **modules("tests/"),
    }
    return load_task(write(root / "harbor-kinds", files))


def tree(root: Path) -> Task:
    """Return a task whose tests are copied into the working directory and run without being named."""
    task = harbor(root / "tree")
    assert task.hidden.tests is not None
    script = task.hidden.tests / "test.sh"
    text = script.read_text().replace("/tests -q --import-mode=importlib", "-q")
    script.write_text(text.replace("cd /app\n", "cd /app\nmkdir -p tests\ncp /tests/*.py tests/\n"))
    return load_task(task.hidden.tests.parent)


def tb1(root: Path) -> Task:
    files = {
        "task.yaml": "instruction: Double it.\nparser_name: pytest\n",
        "Dockerfile": DOCKERFILE.format("/app"),
        "files/solution.py": WRONG,
        "run-tests.sh": "#!/bin/bash\ncd /app\nexport PYTHONPATH=/app\nuv run pytest $TEST_DIR -rA\n",
        "solution.sh": SOLVE,
        **modules("tests/", listed=True),
    }
    (task,) = terminal_bench.load(write(root / "tb1-kinds", files), root / "out")
    return task


def folder(root: Path) -> Task:
    kinds = modules("tests/", listed=True)
    files = {
        "instruction.md": "Double it.",
        "repo/solution.py": WRONG,
        **{path: text for path, text in kinds.items() if _are_all_found(text)},
        "solution/solution.py": RIGHT,
    }
    (task,) = plain_folder.load(write(root / "folder-kinds", files), root / "out")
    return task


def _are_all_found(text: str) -> bool:
    """Tell whether reading a module finds all of its tests, and each of them runs."""
    odd = ("class TestA", "__test__", "@classmethod")
    return text.count("def test_it") == 1 and not any(word in text for word in odd)


def swe(root: Path) -> Task:
    ids = passing(root / "host")
    patch = ""
    for path, text in modules("tests/", listed=True).items():
        lines = difflib.unified_diff([], text.splitlines(keepends=True), "/dev/null", f"b/{path}")
        patch += f"diff --git a/{path} b/{path}\nnew file mode 100644\n" + "".join(lines)
    fix = "diff --git a/solution.py b/solution.py\n--- a/solution.py\n+++ b/solution.py\n"
    row = {
        "instance_id": "owner__kinds-1",
        "image": "atropos-agent/base:debian12",
        "problem_statement": "Double it.",
        "patch": fix + "@@ -1,2 +1,2 @@\n def f(x):\n-    return x\n+    return x + x\n",
        "test_patch": patch,
        "FAIL_TO_PASS": json.dumps(ids),
        "PASS_TO_PASS": "[]",
    }
    write(root, {"swe.jsonl": json.dumps(row) + "\n"})
    (task,) = swebench.load(root / "swe.jsonl", root / "out")
    context = task.context
    assert context is not None
    write(context, {"files/solution.py": WRONG})
    docker = context / "Dockerfile"
    docker.write_text(docker.read_text().replace("WORKDIR /testbed\n", "WORKDIR /testbed\nCOPY files/ /testbed/\n"))
    return load_task(context.parent)


def functions(root: Path) -> Task:
    """Return a task of one function, whose check is made of the kinds that are bare statements."""
    check = "import pytest, unittest\ndef check(candidate):\n    f = candidate\n"
    for number, text in enumerate(KINDS.values()):
        if text.startswith(HEAD + "def test_it():\n") and not any(word in text for word in _OF_A_MODULE):
            body = text[len(HEAD) :]
            if len(ast.parse(body).body) == 1:
                check += "".join(f"    {line}\n" for line in body.replace("test_it", f"kind_{number}").splitlines())
                check += f"    kind_{number}()\n"
    row = {
        "task_id": "HumanEval/902",
        "entry_point": "f",
        "prompt": "def f(x):\n",
        "canonical_solution": "    return x + x\n",
        "test": check,
    }
    write(root, {"rows.jsonl": json.dumps(row) + "\n"})
    (task,) = python_functions.load(root / "rows.jsonl", root / "out")
    return task


FORMATS: dict[str, Callable[[Path], Task]] = {
    "harbor": harbor,
    "tree": tree,
    "terminal-bench": tb1,
    "swebench": swe,
    "folder": folder,
    "functions": functions,
}
