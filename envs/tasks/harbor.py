"""The Harbor task directory, read as a `Task`.

A task directory holds `task.toml`, `instruction.md`, `environment/Dockerfile` (or an image named
in `task.toml`), `tests/test.sh` and, for the reference run, `solution/solve.sh`. Any schema 1.x is
read, old field names included. Field by field:

| task.toml | becomes |
|---|---|
| `schema_version`, `version` | checked to be 1.x |
| `[task] name, version, description, authors, keywords` | `metadata["task"]`; `Task.id` is the directory's name |
| `[metadata]` | `metadata`; `tags`, `band`, `kind`, `difficulty`, `category` make `Task.tags` |
| `[metadata] protected_paths` (ours), old `territory` | `Hidden.protected` |
| `[agent] timeout_sec, user` | `Task.timeout_s`, `Task.user` |
| `[verifier] timeout_sec, env, user` | `Hidden.timeout_s`, `Hidden.test_env`, `Hidden.user` |
| `[solution] env` | `Hidden.solution_env` |
| `[environment] docker_image` | `Task.image`; the `environment` directory with a Dockerfile is `Task.context` |
| `[environment] cpus, memory_mb, storage_mb`, old `memory = "2G"`, `storage` | `Task.limits` |
| `[environment] env, workdir` | `Task.env`, `Task.workdir` |
| `[environment] network_mode`, old `allow_internet` | `Task.limits.network`; silent means none (Harbor: public) |
| `[environment] allowed_hosts`, with `network_mode = "allowlist"` | `Task.limits.allowed_hosts` |
| both in `[agent]`, `[verifier]` | override them for the agent, and for the verifier in `Hidden` |
| `[environment] build_timeout_sec`, `gpu_types`, `source`, `artifacts` | not used: the verdict is the same |

`${NAME}` and `${NAME:-default}` in an `env` value are filled from `variables`.

Refused with `BadTask`, because leaving them out would change the task: docker-compose.yaml,
`[[steps]]`, a separate verifier environment, `[[verifier.collect]]`, gpus and tpu,
`os = "windows"`, healthcheck, mcp_servers, skills_dir, trajectory.json, and every
field that Harbor 0.25 doesn't know. What differs from Harbor's own run: the verifier sees the
agent's changes below the working directory only (see `envs.judging.verifier`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from envs.tasks.task_toml import Config, parse_config
from envs.types import BadTask, Hidden, Task
from sandboxes.base import Limits

LAYOUT = (
    "a task directory holds task.toml, instruction.md, environment/Dockerfile (or [environment] docker_image), "
    "tests/test.sh and solution/solve.sh"
)
_UNSUPPORTED_FILES = {
    "environment/docker-compose.yaml": "several containers aren't supported; put all into environment/Dockerfile",
    "environment/docker-compose.yml": "several containers aren't supported; put all into environment/Dockerfile",
    "steps": "tasks of several steps aren't supported; split them into one task each",
    "trajectory.json": "a prior conversation isn't supported; remove it or skip this task",
    "tests/Dockerfile": "a separate verifier image isn't supported; the verifier uses the task's own image",
}


def load_task(directory: Path, *, variables: Mapping[str, str] | None = None, limits: Limits | None = None) -> Task:
    """Read one task directory.

    variables: what `${NAME}` in the task's `env` tables stands for.
    limits: what the sandbox gets where the task says nothing; None for the defaults of `Limits`.
    Raises BadTask, whose message names the task, the file, the field and the remedy.
    """
    directory = directory.resolve()
    config = parse_config(_read_text(directory, "task.toml"), f"task {directory.name}: task.toml")
    instruction = _read_text(directory, "instruction.md").strip()
    _check_files(directory, config, instruction)
    filled = partial(_filled, directory.name, variables or {})
    context = directory / "environment"
    tags = [*config.metadata.get("tags", []), *map(config.metadata.get, ("band", "kind", "difficulty", "category"))]
    return Task(
        id=directory.name,
        instruction=instruction,
        hidden=_hidden(directory, config, filled),
        image=config.environment.docker_image,
        context=context if (context / "Dockerfile").is_file() else None,
        workdir=config.environment.workdir,
        user=config.agent.user,
        env=filled("environment", config.environment.env),
        limits=_limits(config, limits or Limits()),
        timeout_s=config.agent.timeout_sec,
        tags=tuple(dict.fromkeys(str(tag) for tag in tags if tag)),
        metadata={**config.metadata, "task": config.task},
        digest=directory_digest(directory),
    )


def load_tasks(root: Path, *, variables: Mapping[str, str] | None = None, limits: Limits | None = None) -> list[Task]:
    """Read every task directory at or below `root`, sorted by path.

    Raises BadTask: one error for all tasks that can't be read, for two that share a directory
    name, and when there are none.
    """
    if not root.is_dir():
        raise BadTask(f"{root} is not a directory; {LAYOUT}")
    tasks: dict[str, Task] = {}
    problems: list[str] = []
    for directory in _task_directories(root):
        try:
            task = load_task(directory, variables=variables, limits=limits)
        except BadTask as problem:
            problems.append(str(problem))
            continue
        if task.id in tasks:
            problems.append(f"task {task.id}: two directories have this name, {directory} is one; rename it")
        tasks[task.id] = task
    if problems:
        listing = "\n".join(f"- {problem}" for problem in problems)
        raise BadTask(f"{len(problems)} tasks in {root} can't be used:\n{listing}")
    if not tasks:
        raise BadTask(f"{root} holds no task; {LAYOUT}")
    return list(tasks.values())


def directory_digest(directory: Path) -> str:
    """Return the sha256 over the names, executable bits and contents of all files, bytecode left out."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            executable = bool(path.stat().st_mode & 0o100)
            header = f"{path.relative_to(directory).as_posix()}\0{int(executable)}\0{path.stat().st_size}\0"
            digest.update(header.encode("utf-8", "surrogateescape"))
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _check_files(directory: Path, config: Config, instruction: str) -> None:
    """Raise BadTask for a file that is missing, empty or not supported."""
    name = directory.name
    for path, remedy in _UNSUPPORTED_FILES.items():
        if (directory / path).exists():
            raise BadTask(f"task {name}: {path}: {remedy}")
    if not instruction:
        raise BadTask(f"task {name}: instruction.md is empty; write there what the agent is told")
    if not (directory / "tests/test.sh").is_file():
        raise BadTask(f"task {name}: tests/test.sh is missing; it runs the tests and writes the reward file")
    solution = directory / "solution"
    if solution.is_dir() and not (solution / "solve.sh").is_file():
        raise BadTask(f"task {name}: solution/ has no solve.sh; add it, or remove the folder")
    if not (directory / "environment/Dockerfile").is_file() and config.environment.docker_image is None:
        raise BadTask(
            f"task {name}: there is nothing to run it in; add environment/Dockerfile, or name an image "
            "in task.toml under [environment] docker_image"
        )


def _hidden(directory: Path, config: Config, filled: Callable[[str, Mapping[str, str]], dict[str, str]]) -> Hidden:
    network, hosts = config.verifier.reach(config.environment.reach())
    solution = directory / "solution"
    return Hidden(
        tests=directory / "tests",
        solution=solution if solution.is_dir() else None,
        test_env=filled("verifier", config.verifier.env),
        solution_env=filled("solution", config.solution.env),
        timeout_s=config.verifier.timeout_sec,
        user=config.verifier.user,
        network=network,
        allowed_hosts=hosts,
        protected=tuple(config.metadata.get("protected_paths", [])),
    )


def _limits(config: Config, limits: Limits) -> Limits:
    environment = config.environment
    network, hosts = config.agent.reach(environment.reach())
    return replace(
        limits,
        cpus=environment.cpus or limits.cpus,
        memory_mb=environment.memory_mb or limits.memory_mb,
        disk_mb=environment.storage_mb or limits.disk_mb,
        network=network,
        allowed_hosts=hosts,
    )


def _filled(name: str, variables: Mapping[str, str], table: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return a table of variables with their `${NAME}` filled in. Raises BadTask for one that isn't known."""
    where = f"task {name}: task.toml: [{table}] env."
    return {key: _fill(value, variables, where + key) for key, value in env.items()}


def _fill(value: str, variables: Mapping[str, str], where: str) -> str:
    def one(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = variables.get(name, default)
        if found is None:
            raise BadTask(f"{where} needs the variable {name}; provide it, or write ${{{name}:-default}}")
        return found

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}", one, value)


def _task_directories(root: Path) -> Iterator[Path]:
    if (root / "task.toml").is_file():
        yield root
        return
    for child in sorted(root.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            yield from _task_directories(child)


def _read_text(directory: Path, name: str) -> str:
    try:
        return (directory / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadTask(f"task {directory.name}: {name} is missing; {LAYOUT}") from None
    except UnicodeDecodeError as error:
        raise BadTask(f"task {directory.name}: {name} is not UTF-8 ({error}); save it as UTF-8") from None
