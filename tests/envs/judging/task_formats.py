"""One problem in every task format: `double` in solution.py is wrong, `same` is right."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from envs.tasks.adapters import plain_folder, python_functions, swebench, terminal_bench
from envs.tasks.harbor import load_task
from envs.types import Task

WRONG = 'def double(x):\n    """Twice x."""\n    return x\n\n\ndef same(x):\n    return x\n'
RIGHT = WRONG.replace("return x\n\n\ndef", "return 2 * x\n\n\ndef")
TESTS = """\
import pytest

from solution import double, same


@pytest.mark.parametrize("x, twice", [(4, 8), (0.5, 1.0)])
def test_twice(x, twice):
    assert double(x) == twice


def test_list():
    assert double([1]) == [1, 1]


def test_same():
    assert same("a") == "a"
"""
IDS = ["test_twice[4-8]", "test_twice[0.5-1.0]", "test_list"]
DOCKERFILE = "FROM atropos-agent/base:debian12\nWORKDIR {0}\nCOPY files/ {0}/\n"
HARBOR_TEST = """\
#!/bin/bash
cd /app
python3 -m pytest /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def harbor_task(root: Path, wrong: str, script: str, tests: dict[str, str]) -> Task:
    """Return a Harbor task of a module that is wrong. tests: by path below tests/."""
    files = {
        "task.toml": 'schema_version = "1.4"\n',
        "instruction.md": "Correct it.",
        "environment/Dockerfile": DOCKERFILE.format("/app"),
        "environment/files/solution.py": wrong,
        "tests/test.sh": script,
        **{f"tests/{path}": text for path, text in tests.items()},
    }
    return load_task(write(root / "harbor", files))


def terminal_bench_task(root: Path, wrong: str, right: str, script: str, tests: dict[str, str]) -> Task:
    files = {
        "task.yaml": "instruction: Correct it.\nparser_name: pytest\n",
        "Dockerfile": DOCKERFILE.format("/app"),
        "files/solution.py": wrong,
        "run-tests.sh": f"#!/bin/bash\ncd /app\n{script}\n",
        "solution.sh": f"cat > solution.py << 'END'\n{right}END\n",
        **{f"tests/{path}": text for path, text in tests.items()},
    }
    (task,) = terminal_bench.load(write(root / "terminal-bench", files), root / "out")
    return task


def folder_task(root: Path, wrong: str, right: str, files: dict[str, str]) -> Task:
    known = {"instruction.md": "Correct it.", "repo/solution.py": wrong, "solution/solution.py": right}
    (task,) = plain_folder.load(write(root / "folder", {**known, **files}), root / "out")
    return task


def function_task(root: Path, name: str, prompt: str, solution: str, check: str) -> Task:
    row = {
        "task_id": "HumanEval/901",
        "entry_point": name,
        "prompt": prompt,
        "canonical_solution": solution,
        "test": check,
    }
    write(root, {"rows.jsonl": json.dumps(row) + "\n"})
    (task,) = python_functions.load(root / "rows.jsonl", root / "out")
    return task


def diff(path: str, old: str, new: str) -> str:
    """Return git's patch of a file; an empty `old` makes it."""
    before, after = (text.splitlines(keepends=True) for text in (old, new))
    lines = difflib.unified_diff(before, after, f"a/{path}" if old else "/dev/null", f"b/{path}")
    made = "" if old else "new file mode 100644\n"
    return f"diff --git a/{path} b/{path}\n{made}{''.join(lines)}"


def swebench_task(
    root: Path, wrong: str, right: str, tests: dict[str, tuple[str, str]], fail: list[str], keep: list[str]
) -> Task:
    """Return a task of an image as the sets publish them, its name in place of an image's in the row.

    tests: by path, as they were and as they shall be. fail, keep: the ids of FAIL_TO_PASS and PASS_TO_PASS."""
    row = {
        "instance_id": "owner__solution-1",
        "image": "atropos-agent/base:debian12",
        "problem_statement": "It is wrong.",
        "patch": diff("solution.py", wrong, right),
        "test_patch": "".join(diff(path, old, new) for path, (old, new) in tests.items()),
        "FAIL_TO_PASS": json.dumps(fail),
        "PASS_TO_PASS": json.dumps(keep),
    }
    write(root, {"swe.jsonl": json.dumps(row) + "\n"})
    (task,) = swebench.load(root / "swe.jsonl", root / "out")
    # What the published image would hold.
    context = task.context
    assert context is not None
    write(context, {"files/solution.py": wrong, **{f"files/{path}": old for path, (old, _) in tests.items() if old}})
    docker = context / "Dockerfile"
    docker.write_text(docker.read_text().replace("WORKDIR /testbed\n", "WORKDIR /testbed\nCOPY files/ /testbed/\n"))
    return load_task(context.parent)


def harbor(root: Path) -> Task:
    return harbor_task(root, WRONG, HARBOR_TEST, {"test_outputs.py": TESTS})


def tb1(root: Path) -> Task:
    tests = {"test_outputs.py": "import sys\n\nsys.path.append('/app')\n" + TESTS}
    return terminal_bench_task(root, WRONG, RIGHT, "uv run pytest $TEST_DIR/test_outputs.py -rA", tests)


def folder(root: Path) -> Task:
    same = "from solution import same\n\ndef test_same():\n    assert same(1) == 1\n"
    return folder_task(root, WRONG, RIGHT, {"repo/tests/test_same.py": same, "tests/test_hidden.py": TESTS})


def functions(root: Path) -> Task:
    check = "def check(candidate):\n    assert candidate(4) == 8\n    assert candidate([1]) == [1, 1]\n"
    return function_task(root, "double", 'def double(x):\n    """Twice x."""\n', "    return 2 * x\n", check)


def swe(root: Path) -> Task:
    old = "from solution import same\n\n\ndef test_old():\n    assert same(1) == 1\n"
    head = "import pytest\n\nfrom solution import double, same\n"
    new = old.replace("from solution import same\n", head) + TESTS.removeprefix(head)
    module = "tests/test_solution.py"
    ids = [f"{module}::{test}" for test in (*IDS, "test_old", "test_same")]
    return swebench_task(root, WRONG, RIGHT, {module: (old, new)}, ids[: len(IDS)], ids[len(IDS) :])


FORMATS: dict[str, Callable[[Path], Task]] = {
    "harbor": harbor,
    "terminal-bench": tb1,
    "swebench": swe,
    "folder": folder,
    "functions": functions,
}


def hurried(task: Task) -> Task:
    """Return a task that gives its tests little time: a cheat that hangs is waited for."""
    return replace(task, hidden=replace(task.hidden, timeout_s=min(60.0, task.hidden.timeout_s)))


def worked_on(task: Task, scripts: dict[str, str]) -> dict[str, tuple[Task, str]]:
    """Return scripts with the task that all of them work on, as `judge_all` takes them."""
    return {name: (task, script) for name, script in scripts.items()}
