"""One problem in every task format: `double` in solution.py is wrong, `same` is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import turns

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


def harbor(root: Path) -> Task:
    files = {
        "task.toml": 'schema_version = "1.4"\n',
        "instruction.md": "Correct `double`.",
        "environment/Dockerfile": DOCKERFILE.format("/app"),
        "environment/files/solution.py": WRONG,
        "tests/test.sh": HARBOR_TEST,
        "tests/test_outputs.py": TESTS,
        "solution/solve.sh": "cp /solution/right.py solution.py\n",
        "solution/right.py": RIGHT,
    }
    return load_task(write(root / "harbor-sample", files))


def tb1(root: Path) -> Task:
    files = {
        "task.yaml": "instruction: Correct double.\nparser_name: pytest\n",
        "Dockerfile": DOCKERFILE.format("/app"),
        "files/solution.py": WRONG,
        "run-tests.sh": "#!/bin/bash\ncd /app\nuv run pytest $TEST_DIR/test_outputs.py -rA\n",
        "tests/test_outputs.py": "import sys\n\nsys.path.append('/app')\n" + TESTS,
        "solution.sh": f"cat > solution.py << 'END'\n{RIGHT}END\n",
    }
    (task,) = terminal_bench.load(write(root / "tb1-sample", files), root / "out")
    return task


def folder(root: Path) -> Task:
    files = {
        "instruction.md": "Correct `double`.",
        "repo/solution.py": WRONG,
        "repo/tests/test_same.py": "from solution import same\n\ndef test_same():\n    assert same(1) == 1\n",
        "tests/test_hidden.py": TESTS,
        "solution/solution.py": RIGHT,
    }
    (task,) = plain_folder.load(write(root / "folder-sample", files), root / "out")
    return task


def functions(root: Path) -> Task:
    row = {
        "task_id": "HumanEval/901",
        "entry_point": "double",
        "prompt": 'def double(x):\n    """Twice x."""\n',
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(4) == 8\n    assert candidate([1]) == [1, 1]\n",
    }
    write(root, {"rows.jsonl": json.dumps(row) + "\n"})
    (task,) = python_functions.load(root / "rows.jsonl", root / "out")
    return task


def swe(root: Path) -> Task:
    """A repository image as the sets publish them, its name in place of an image's in the row."""
    old = "from solution import same\n\n\ndef test_old():\n    assert same(1) == 1\n"
    new = TESTS.replace("import pytest\n\nfrom solution import double, same\n", "from solution import double\n")
    patch = [
        "diff --git a/tests/test_solution.py b/tests/test_solution.py\n",
        "--- a/tests/test_solution.py\n+++ b/tests/test_solution.py\n",
        "@@ -1,5 +1,6 @@\n-from solution import same\n+import pytest\n+from solution import double, same\n",
        " \n \n def test_old():\n     assert same(1) == 1\n",
    ]
    body = new.split("from solution import double\n", 1)[1].splitlines()
    patch[2] = (
        f"@@ -1,5 +1,{6 + len(body)} @@\n-from solution import same\n"
        "+import pytest\n+from solution import double, same\n"
    )
    patch += [f"+{line}\n" for line in body]
    fix = (
        "diff --git a/solution.py b/solution.py\n--- a/solution.py\n+++ b/solution.py\n"
        '@@ -1,3 +1,3 @@\n def double(x):\n     """Twice x."""\n-    return x\n+    return 2 * x\n'
    )
    row = {
        "instance_id": "owner__solution-1",
        "image": "atropos-agent/base:debian12",
        "problem_statement": "double is wrong",
        "patch": fix,
        "test_patch": "".join(patch),
        "FAIL_TO_PASS": json.dumps([f"tests/test_solution.py::{test}" for test in IDS]),
        "PASS_TO_PASS": json.dumps(["tests/test_solution.py::test_old", "tests/test_solution.py::test_same"]),
    }
    write(root, {"swe.jsonl": json.dumps(row) + "\n"})
    (task,) = swebench.load(root / "swe.jsonl", root / "out")
    # What the published image would hold.
    context = task.context
    assert context is not None
    write(context, {"files/solution.py": WRONG, "files/tests/test_solution.py": old})
    docker = (
        (context / "Dockerfile").read_text().replace("WORKDIR /testbed\n", "WORKDIR /testbed\nCOPY files/ /testbed/\n")
    )
    (context / "Dockerfile").write_text(docker)
    return load_task(context.parent)


FORMATS: dict[str, Callable[[Path], Task]] = {
    "harbor": harbor,
    "terminal-bench": tb1,
    "swebench": swe,
    "folder": folder,
    "functions": functions,
}


def share(scripts: dict[str, str], number: int, most: int) -> dict[str, str]:
    """Return the scripts that are tried in the format of that number; `-m slow` tries all in all formats."""
    names = list(scripts)[(number + turns.seed()) % len(FORMATS) :: len(FORMATS)]
    first = turns.seed() * most % len(names)
    return {name: scripts[name] for name in [*names[first:], *names[:first]][:most]}
