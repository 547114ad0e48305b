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
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from envs.types import BadTask, Hidden, Task
from sandboxes.base import Limits
from sandboxes.docker.proxy import AllowList

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
_UNSUPPORTED_FIELDS = {
    "gpus": "GPUs aren't supported; set gpus = 0 or skip this task",
    "tpu": "TPUs aren't supported; skip this task",
    "healthcheck": "health checks aren't supported; skip this task",
    "mcp_servers": "MCP servers aren't supported; skip this task",
    "skills_dir": "skills aren't supported; skip this task",
}


def load_task(directory: Path, *, variables: Mapping[str, str] | None = None, limits: Limits | None = None) -> Task:
    """Read one task directory.

    variables: what `${NAME}` in the task's `env` tables stands for.
    limits: what the sandbox gets where the task says nothing; None for the defaults of `Limits`.
    Raises BadTask, whose message names the task, the file, the field and the remedy.
    """
    limits = limits or Limits()
    directory = directory.resolve()
    name = directory.name
    config = _read_config(directory)
    for path, remedy in _UNSUPPORTED_FILES.items():
        if (directory / path).exists():
            raise BadTask(f"task {name}: {path}: {remedy}")
    instruction = _read_text(directory, "instruction.md").strip()
    if not instruction:
        raise BadTask(f"task {name}: instruction.md is empty; write there what the agent is told")
    if not (directory / "tests/test.sh").is_file():
        raise BadTask(f"task {name}: tests/test.sh is missing; it runs the tests and writes the reward file")
    solution = directory / "solution"
    if solution.is_dir() and not (solution / "solve.sh").is_file():
        raise BadTask(f"task {name}: solution/ has no solve.sh; add it, or remove the folder")
    environment = config.environment
    context = directory / "environment"
    has_context = (context / "Dockerfile").is_file()
    if not has_context and environment.docker_image is None:
        raise BadTask(
            f"task {name}: there is nothing to run it in; add environment/Dockerfile, or name an image "
            "in task.toml under [environment] docker_image"
        )
    network, hosts = config.agent.reach(environment.reach())
    verifier_network, verifier_hosts = config.verifier.reach(environment.reach())

    def filled(table: str, env: Mapping[str, str]) -> dict[str, str]:
        return {
            key: _fill(value, variables or {}, f"task {name}: task.toml: [{table}] env.{key}")
            for key, value in env.items()
        }

    tags = config.metadata.get("tags", [])
    labels = [config.metadata.get(key) for key in ("band", "kind", "difficulty", "category")]
    return Task(
        id=name,
        instruction=instruction,
        hidden=Hidden(
            tests=directory / "tests",
            solution=solution if solution.is_dir() else None,
            test_env=filled("verifier", config.verifier.env),
            solution_env=filled("solution", config.solution.env),
            timeout_s=config.verifier.timeout_sec,
            user=config.verifier.user,
            network=verifier_network,
            allowed_hosts=verifier_hosts,
            protected=tuple(config.metadata.get("protected_paths", [])),
        ),
        image=environment.docker_image,
        context=context if has_context else None,
        workdir=environment.workdir,
        user=config.agent.user,
        env=filled("environment", environment.env),
        limits=replace(
            limits,
            cpus=environment.cpus or limits.cpus,
            memory_mb=environment.memory_mb or limits.memory_mb,
            disk_mb=environment.storage_mb or limits.disk_mb,
            network=network,
            allowed_hosts=hosts,
        ),
        timeout_s=config.agent.timeout_sec,
        tags=tuple(dict.fromkeys(str(tag) for tag in [*tags, *labels] if tag)),
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


def _read_config(directory: Path) -> _Config:
    where = f"task {directory.name}: task.toml"
    try:
        table = tomllib.loads(_read_text(directory, "task.toml"))
    except tomllib.TOMLDecodeError as error:
        raise BadTask(f"{where} is not valid TOML: {error}") from None
    try:
        return _Config.model_validate(table)
    except ValidationError as error:
        raise BadTask("; ".join(f"{where}: {_sentence(dict(problem))}" for problem in error.errors())) from None


def _sentence(problem: Mapping[str, Any]) -> str:
    *tables, key = [str(part) for part in problem["loc"]] or [""]
    field = f"[{'.'.join(tables)}] {key}" if tables else key
    if problem["type"] == "extra_forbidden":
        return f"{field} is not a field that is known here; correct or remove it"
    message = problem["msg"].removeprefix("Value error, ")
    return (
        f"{field}: {message}, not {problem['input']!r}" if problem["type"] != "value_error" else f"{field}: {message}"
    )


def _fill(value: str, variables: Mapping[str, str], where: str) -> str:
    def one(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = variables.get(name, default)
        if found is None:
            raise BadTask(f"{where} needs the variable {name}; provide it, or write ${{{name}:-default}}")
        return found

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}", one, value)


def _megabytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG])I?B?", value.strip().upper())
    if match is None:
        raise ValueError(f'{value!r} is not a size; write for example "512M" or "2G"')
    return int(float(match.group(1)) * {"K": 1 / 1024, "M": 1, "G": 1024}[match.group(2)])


def _known_network(value: object) -> object:
    if value not in (None, "public", "no-network", "allowlist"):
        raise ValueError(f'{value!r} isn\'t supported; use "public", "no-network" or "allowlist"')
    return value


def _hosts(value: list[str]) -> list[str]:
    AllowList.of(value)
    return value


User = Annotated[str | None, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
NetworkMode = Annotated[str | None, BeforeValidator(_known_network)]
Hosts = Annotated[list[str], AfterValidator(_hosts)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Megabytes = Annotated[int, Field(gt=0), BeforeValidator(_megabytes)]
Reach = tuple[bool, tuple[str, ...]]
"""Whether there is a network, and the hosts that can be reached without one."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Networked(_Section):
    """A table that may say what can be reached."""

    network_mode: NetworkMode = None
    allowed_hosts: Hosts | None = None

    @model_validator(mode="after")
    def _hosts_need_their_mode(self) -> _Networked:
        if self.allowed_hosts and self.network_mode != "allowlist":
            raise ValueError('allowed_hosts need network_mode = "allowlist" beside them')
        return self

    def reach(self, baseline: Reach = (False, ())) -> Reach:
        if self.network_mode is None:
            return baseline
        return self.network_mode == "public", tuple(self.allowed_hosts or ())


class _Agent(_Networked):
    timeout_sec: Seconds | None = None
    user: User = None


class _Verifier(_Networked):
    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: User = None
    environment_mode: str | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []

    @model_validator(mode="after")
    def _shared_only(self) -> _Verifier:
        if self.environment is not None or self.environment_mode not in (None, "shared"):
            raise ValueError(
                "a separate verifier environment isn't supported; the verifier uses a fresh sandbox of the task's own "
                "image: remove environment_mode and [verifier.environment], or skip this task"
            )
        if self.collect:
            raise ValueError("[[verifier.collect]] isn't supported; write what is judged below the working directory")
        return self


class _Environment(_Networked):
    docker_image: str | None = None
    build_timeout_sec: Seconds = 600.0
    os: str = "linux"
    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_mb: Megabytes | None = None
    storage_mb: Megabytes | None = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    env: dict[str, str] = {}
    workdir: Annotated[str, Field(pattern="^/")] | None = None
    healthcheck: dict[str, Any] | None = None
    mcp_servers: list[Any] = []
    skills_dir: str | None = None
    allow_internet: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        table = dict(table)
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if old in table:
                value = _megabytes(table.pop(old))
                if table.setdefault(new, value) != value:
                    raise ValueError(f"{old} and {new} contradict each other; keep {new}")
        return table

    @model_validator(mode="after")
    def _supported(self) -> _Environment:
        if self.os.lower() != "linux":
            raise ValueError(f"os = {self.os!r} isn't supported; only Linux tasks run here")
        for name, remedy in _UNSUPPORTED_FIELDS.items():
            if getattr(self, name):
                raise ValueError(f"{name}: {remedy}")
        return self

    def reach(self, baseline: Reach = (False, ())) -> Reach:
        return super().reach((True, ()) if self.allow_internet else baseline)


class _Solution(_Section):
    env: dict[str, str] = {}


class _Config(_Section):
    schema_version: str = "1.4"
    task: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    agent: _Agent = _Agent()
    verifier: _Verifier = _Verifier()
    environment: _Environment = _Environment()
    solution: _Solution = _Solution()
    source: str | None = None
    artifacts: list[Any] = []
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: list[Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        table = dict(table)
        if "version" in table:
            table.setdefault("schema_version", table.pop("version"))
        metadata = table.get("metadata")
        if isinstance(metadata, dict) and "territory" in metadata:  # as 0.1 wrote it
            kept = {name: value for name, value in metadata.items() if name != "territory"}
            table["metadata"] = {"protected_paths": metadata["territory"], **kept}
        return table

    @model_validator(mode="after")
    def _readable(self) -> _Config:
        if not re.fullmatch(r"1(\.\d+)*", self.schema_version):
            raise ValueError(f"schema_version {self.schema_version!r} isn't supported; 1.x is")
        if self.steps:
            raise ValueError("[[steps]] aren't supported; split the task into one task a step")
        paths = self.metadata.get("protected_paths", [])
        if not isinstance(self.metadata.get("tags", []), list):
            raise ValueError("[metadata] tags must be a list of strings")
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise ValueError("[metadata] protected_paths must be a list of strings")
        return self
