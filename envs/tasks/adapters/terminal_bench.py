"""Terminal-bench 1 task directories (`task.yaml`).

| file or field | becomes |
|---|---|
| `task.yaml` `instruction` | the instruction |
| `difficulty`, `category`, `tags` | `[metadata]` |
| `max_agent_timeout_sec`, `max_test_timeout_sec` | `[agent] timeout_sec` (360), `[verifier] timeout_sec` (60) |
| `Dockerfile` and the files beside it | `environment/`; `task.yaml`, tests, solution, run-tests.sh stay out |
| `docker-compose.yaml` | read for what one container can't do, which is refused; then left out |
| `run-tests.sh`, `tests/` | `tests/`, run with `TEST_DIR=/tests` |
| `solution.sh`, or `solution.yaml` (commands) | `solution/solve.sh` |
| `author_*`, `run_tests_in_same_shell`, `expert_time_estimate_min`, ... | not used |

A reward needs exit code 0 of run-tests.sh, and pytest seen to run at least one test, all of them passed.
Terminal-bench counts SKIPPED and XFAIL as passed; here they are not. `parser_name` other than pytest is refused.
run-tests.sh often downloads uv and pytest: if the image has pytest, `uv run pytest` and `uvx pytest` are that one.
Paths outside of the working directory are judged too if the tests name them (`envs.tasks.named_paths`). The verifier
has the network, the agent has it too, as in terminal-bench.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from envs.tasks.adapters.directory import INSIDE, check_separate, convert_each, write_task
from envs.tasks.compose import read_compose, read_yaml
from envs.tasks.task_folders import check_links
from envs.types import BadTask, Task

_NOT_CONTEXT = frozenset({"task.yaml", "tests", "run-tests.sh", "solution.sh", "solution.yaml", "docker-compose.yaml"})


def load(folder: Path, out: Path) -> list[Task]:
    """Convert a task directory, or each one below `folder`, into directories below `out`.

    Raises one BadTasks with all unusable ones."""
    found: list[Path] = []
    for one in sorted(path.parent for path in folder.rglob("task.yaml")):
        if not found or not one.is_relative_to(found[-1]):  # files of a task are its own
            found.append(one)
    if not found:
        raise BadTask(f"{folder} holds no task.yaml; a terminal-bench task is a folder with task.yaml and tests/")
    check_separate(folder, out)
    named = ((f"task {one.resolve().name}", partial(_convert, one, folder)) for one in found)
    return convert_each(named, out, "task", str(folder))


def _convert(folder: Path, root: Path, out: Path) -> Path:
    check_links(folder, root)
    name = folder.resolve().name
    table = read_yaml(folder / "task.yaml", name)
    if not isinstance(table, dict):
        raise BadTask(f"task {name}: task.yaml must be a table of fields")
    instruction = table.get("instruction")
    if not isinstance(instruction, str) or not instruction.strip():
        raise BadTask(f"task {name}: task.yaml: instruction is missing or empty")
    if table.get("parser_name", "pytest") != "pytest":
        raise BadTask(f"task {name}: task.yaml: parser_name {table['parser_name']!r} isn't supported; only pytest is")
    for needed in ("Dockerfile", "run-tests.sh", "tests"):
        if not (folder / needed).exists():
            raise BadTask(f"task {name}: {needed} is missing")
    read_compose(folder, name)
    files: dict[str, str | bytes | Path] = {
        "task.toml": _make_task_toml(table, name),
        "instruction.md": instruction.strip() + "\n",
        "tests": folder / "tests",
        "tests/run-tests.sh": folder / "run-tests.sh",
        "tests/test.sh": (INSIDE / "terminal_bench.sh").read_text(encoding="utf-8"),
    }
    for path in sorted(folder.iterdir()):
        if path.name not in _NOT_CONTEXT:
            files[f"environment/{path.name}"] = path
    if (folder / "solution.sh").is_file():
        files["solution/solve.sh"] = folder / "solution.sh"
    elif (folder / "solution.yaml").is_file():
        files["solution/solve.sh"] = _read_commands(folder / "solution.yaml", name)
    return write_task(out, name, files)


def _make_task_toml(table: Mapping[str, Any], name: str) -> str:
    seconds = {}
    for field, default in (("max_agent_timeout_sec", 360.0), ("max_test_timeout_sec", 60.0)):
        value = table.get(field, default)
        if type(value) not in (int, float) or not value > 0:
            raise BadTask(f"task {name}: task.yaml: {field} must be a number of seconds, not {value!r}")
        seconds[field] = value
    tags = table.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise BadTask(f"task {name}: task.yaml: tags must be a list of texts")
    labels = {key: str(table[key]) for key in ("difficulty", "category") if table.get(key)}
    metadata = "".join(f"{key} = {json.dumps(value)}\n" for key, value in labels.items())
    return (
        f'schema_version = "1.4"\n\n[metadata]\nkind = "terminal-bench"\ntags = {json.dumps(tags)}\n{metadata}\n'
        f"[agent]\ntimeout_sec = {seconds['max_agent_timeout_sec']}\n\n"
        f"[verifier]\ntimeout_sec = {seconds['max_test_timeout_sec']}\n\n"
        '[environment]\nnetwork_mode = "public"\nmemory_mb = 2048\n'
    )


def _read_commands(path: Path, name: str) -> str:
    steps = read_yaml(path, name)
    commands = [step.get("command") if isinstance(step, dict) else None for step in steps or []]
    if not commands or not all(isinstance(command, str) for command in commands):
        raise BadTask(f"task {name}: {path.name} must be a list of entries with a command")
    return "#!/bin/bash\n" + "".join(f"{command}\n" for command in commands)
