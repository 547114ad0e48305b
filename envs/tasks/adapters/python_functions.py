"""Single Python functions: HumanEval, MBPP and sets with their fields (EvalPlus, HumanEvalPack), as JSONL or Parquet.

| field | becomes |
|---|---|
| `task_id` | `Task.id` (`HumanEval/3` becomes `HumanEval-3`; a bare number gets the prefix `mbpp-`) |
| `prompt` with `entry_point` (HumanEval) | the start of /app/solution.py, and quoted in the instruction |
| `text`, or `prompt` without `entry_point` (MBPP) | the instruction; the first test shows the function's name |
| `canonical_solution` (HumanEval), `code` (MBPP) | the reference: it completes or replaces solution.py |
| `test` (defines `check(candidate)`) | one hidden test: `check` itself, where nothing else calls it |
| `test_list`, `challenge_test_list` (assertions) | one hidden test each |
| `test_setup_code` or `test_imports` | stands before them |

Everything runs in the project's own base image. Other fields are not used.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from envs.tasks.adapters.dataset_rows import Row, convert_rows
from envs.tasks.adapters.directory import make_task_toml, parsing_python, write_task
from envs.tasks.adapters.script import OWN_TESTS, pytest_verifier
from envs.types import BadTask, Task
from sandboxes.docker.images.base_image import BASE_IMAGE

_MODULE = "test_hidden.py"
_CHECK = re.compile(r"^def check\((\w+)\):", re.MULTILINE)


def load(path: Path, out: Path) -> list[Task]:
    """Convert every row of a file into a task directory below `out`. Raises BadTask."""
    return convert_rows(path, out, _convert)


def _convert(row: Row, out: Path) -> Path:
    number = row.values.get("task_id")
    task_id = f"mbpp-{number}" if type(number) is int else row.text("task_id")
    entry_point = row.text("entry_point", default="")
    if entry_point:
        instruction, start, solution, tests = _convert_humaneval(row, entry_point)
    else:
        instruction, start, solution, tests = _convert_mbpp(row)
    for name, source in (("the reference", solution), ("the tests", "\n\n".join(tests))):
        with parsing_python(f"{row.where}: {name} of {task_id}"):
            ast.parse(source)
    functions = [node.name for node in ast.parse(tests[-1]).body if isinstance(node, ast.FunctionDef)]
    names = [f"test_{entry_point}"] if entry_point else [name for name in functions if name.startswith("test_")]
    listed = [f"{_MODULE}::{name}" for name in names]
    if not listed:
        raise BadTask(f"{row.where}: {task_id} has no tests")
    files: dict[str, str | bytes | Path] = {
        "task.toml": make_task_toml("function", timeout_s=60, memory_mb=512),
        "instruction.md": instruction,
        "environment/Dockerfile": f"FROM {BASE_IMAGE}\nWORKDIR /app\nCOPY files/ /app/\n",
        "environment/files/solution.py": start,
        "solution/solution.py": solution,
        "solution/solve.sh": "#!/bin/bash\ncp /solution/solution.py /app/solution.py\n",
        f"tests/{_MODULE}": "\n\n".join(tests),
    }
    verifier = pytest_verifier(listed, [], files=[f"/tests/{_MODULE}"], workdir="/app", options=OWN_TESTS)
    return write_task(out, task_id, {**files, **verifier})


def _convert_humaneval(row: Row, entry_point: str) -> tuple[str, str, str, list[str]]:
    prompt, reference, test = (row.text(name) for name in ("prompt", "canonical_solution", "test"))
    if not entry_point.isidentifier():
        raise BadTask(f"{row.where}: entry_point {entry_point!r} is not a name")
    instruction = (
        f"Complete the function `{entry_point}` in /app/solution.py, which starts like this:\n\n"
        f"```python\n{prompt.strip()}\n```\n"
    )
    tests = [
        f"from solution import *\nfrom solution import {entry_point}",  # what the prompt defines, tests use
        _split_asserts(test, entry_point),
    ]
    return instruction, prompt, prompt + reference, tests


def _split_asserts(test: str, entry_point: str) -> str:
    """Return the source of a test in place of `check(candidate)`: each of its asserts is one of the test then."""
    name = f"test_{entry_point}"
    test = re.sub(rf"^check\({entry_point}\)\s*\Z", "", test, flags=re.MULTILINE)  # HumanEvalPack's own call
    if len(re.findall(r"\bcheck\s*\(", test)) == len(_CHECK.findall(test)) == 1:
        return _CHECK.sub(rf"def {name}(\1={entry_point}):", test)
    return f"{test}\n\ndef {name}():\n    check({entry_point})\n"


def _convert_mbpp(row: Row) -> tuple[str, str, str, list[str]]:
    description, reference = row.text("text", "prompt"), row.text("code")
    assertions = [*row.texts("test_list"), *row.texts("challenge_test_list")]
    if not assertions:
        raise BadTask(f"{row.where}: test_list is missing or empty")
    setup = row.text("test_setup_code", default="") or "\n".join(row.texts("test_imports"))
    shown = f"```python\n{assertions[0].strip()}\n```"
    instruction = f"{description.strip()}\n\nWrite it into /app/solution.py. This must hold:\n\n{shown}\n"
    cases = [
        f"def test_{number}():\n{textwrap.indent(assertion.strip(), '    ')}\n"
        for number, assertion in enumerate(assertions, 1)
    ]
    return instruction, "", reference, ["from solution import *", setup, "\n\n".join(cases)]
