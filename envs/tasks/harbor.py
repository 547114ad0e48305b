"""The Harbor task directory, read as a `Task`.

A task directory holds `task.toml`, `instruction.md`, `environment/Dockerfile` (or an image named
in `task.toml`), `tests/test.sh` and, for the reference run, `solution/solve.sh`. A task readable
by Harbor 0.26 is readable here, of every schema and with old field names. Field by field:

| task.toml | becomes |
|---|---|
| `schema_version`, `version` | any |
| `[task] name, version, description, authors, keywords` | `metadata["task"]`; `Task.id` is the directory's name |
| `[metadata]` | `metadata`; `tags`, `band`, `kind`, `difficulty`, `category` make `Task.tags` |
| `[metadata] protected_paths` (ours) | `Hidden.protected` |
| `[metadata] graded_paths` (ours) | `Hidden.graded`; absent: what the tests name (`envs.tasks.named_paths`) |
| `[metadata] capabilities = "none"` (ours) | `Task.limits.capabilities`: root has no rights of its own |
| `[metadata] judge = true` (ours), or a `[judge]` in a TOML file of the tests (Reward Kit's) | `Hidden.asks_judge` |
| `[verifier] env` with a key or address of OpenAI or Anthropic | the same; the run's judge gives their values |
| `[agent] timeout_sec, user` | `Task.timeout_s`, `Task.user` |
| `[verifier] timeout_sec, env, user` | `Hidden.timeout_s`, `Hidden.test_env`, `Hidden.user` |
| `[verifier] environment_mode = "separate"` | `artifacts` and /logs/artifacts are in `Hidden.graded` |
| with `tests/Dockerfile`, or `[verifier.environment] docker_image` | `Hidden.own`, and only the artifacts are judged |
| `[[verifier.collect]]` | `Hidden.collect` |
| `[solution] env` | `Hidden.solution_env` |
| `[environment] docker_image` | `Task.image`; `environment/`, with a Dockerfile or as files for it, is `Task.context` |
| `[environment] cpus, memory_mb, storage_mb`, old `memory = "2G"`, `storage` | `Task.limits` |
| `[environment] mcp_servers` | `Task.mcp_servers` (docs/mcp.md) |
| `[environment] skills_dir` | `Task.skills_dir` |
| `[environment] env, workdir` | `Task.env`, `Task.workdir` |
| `[environment] network_mode`, old `allow_internet` | `Task.limits.network`; silent means none (Harbor: public) |
| `[environment] allowed_hosts`, with `network_mode = "allowlist"` | `Task.limits.allowed_hosts` |
| `network_mode: none` of environment/docker-compose.yaml | no network, whatever task.toml says |
| `ENTRYPOINT` of environment/Dockerfile, `entrypoint` and `command` of its docker-compose.yaml | `Task.service` |
| `[environment] healthcheck` | `Task.health` |
| both in `[agent]`, `[verifier]` | override them for the agent, and for the verifier in `Hidden` |
| `[[steps]]`, `multi_step_reward_strategy` | `Task.steps`, see `envs.tasks.harbor_steps`; `Task.last_counts` |
| `[environment] build_timeout_sec`, `gpu_types`, `source` | not used: the verdict is the same |

`${NAME:-default}` in an `env` value is its default. Lines with a canary at the beginning of
an instruction are left out, as by Harbor.

Named in a warning, and left out: fields unknown to Harbor too, `.harborignore`.
Refused with `BadTask`, because the reward would be wrong: a docker-compose.yaml of several containers, gpus and tpu,
`os = "windows"`, trajectory.json, an MCP server outside of the sandbox. One difference from Harbor's own run: the
verifier sees the agent's changes below the working directory and in `graded_paths` (see `envs.judging.verifier`).
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from envs.tasks.compose import read_compose
from envs.tasks.harbor_source import LAYOUT, Source, hidden, limits, read_text
from envs.tasks.harbor_steps import combine_hidden, read_steps, shared_agent
from envs.tasks.task_folders import check_links, find_below
from envs.tasks.task_toml import parse_config
from envs.types import BadTask, BadTasks, Hidden, Task
from sandboxes.base import Limits
from sandboxes.naming import did_you_mean

logger = logging.getLogger(__name__)

_PRIOR = "trajectory.json"
_NO_WORKDIR = (
    "environment/Dockerfile has no WORKDIR, task.toml no [environment] workdir, and where the base image's own is / "
    "only the paths named in the tests are judged; name the source tree"
)
_SHOWN = 5
"""How many tasks a warning names."""


def load_task(directory: Path, digest: str | None = None) -> Task:
    """Read one task directory. digest: of it, if it is known. Links in it may not lead out of it.

    Raises BadTask with the task, the file, the field and the remedy in its message.
    """
    task, remarks = read_task(directory, digest)
    log_remarks({what: [task.id] for what in remarks})
    return task


def read_task(directory: Path, digest: str | None = None) -> tuple[Task, Sequence[str]]:
    """Return the task of `load_task`, and the remarks about it, for `log_remarks`. Raises BadTask."""
    return _read_directory(directory, directory, Limits(), digest)


def log_remarks(remarks: Mapping[str, Sequence[str]]) -> None:
    """Log each remark once, with its tasks."""
    for what, names in remarks.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        logger.warning("%s %s%s: %s", "task" if len(names) == 1 else "tasks", ", ".join(names[:_SHOWN]), more, what)


def load_tasks(root: Path, defaults: Limits | None = None) -> list[Task]:
    """Read every task directory at or below `root`, sorted by path. Tasks may share files in it by links. defaults: for
    the limits that a task leaves open.

    Raises BadTasks, with the usable ones, for all unreadable tasks and for those with the name of an earlier
    directory; BadTask without any task.
    """
    if not root.is_dir():
        raise BadTask(f"{root} is not a directory; {LAYOUT}")
    tasks: dict[str, Task] = {}
    problems: list[str] = []
    ignored: dict[str, list[str]] = defaultdict(list)
    for directory in find_below(root, _is_task):
        try:
            task, left_out = _read_directory(directory, root, defaults or Limits())
        except BadTask as problem:
            problems.append(str(problem))
            continue
        if task.id in tasks:
            problems.append(f"task {task.id}: two directories have this name, {directory} is one; rename it")
            continue
        tasks[task.id] = task
        for what in left_out:
            ignored[what].append(task.id)
    log_remarks(ignored)
    if problems:
        raise BadTasks("task", problems, list(tasks.values()), f" in {root}")
    if not tasks:
        raise BadTask(f"{root} holds no task; {LAYOUT}")
    return list(tasks.values())


def find_task(root: Path, name: str, defaults: Limits | None = None) -> Task:
    """Read the task of this name at or below `root`, and no other. defaults: for the limits that it leaves open. Raises
    BadTask, with near names if there is none."""
    found = find_below(root, _is_task) if root.is_dir() else ()
    known = {directory.resolve().name: directory for directory in found}
    if not known:
        raise BadTask(f"{root} holds no task; {LAYOUT}")
    if name not in known:
        raise BadTask(f"{root} holds no task {name!r}{did_you_mean(name, known)}")
    task, remarks = _read_directory(known[name], root, defaults or Limits())
    log_remarks({what: [task.id] for what in remarks})
    return task


def directory_digest(directory: Path) -> str:
    """Return the sha256 over the names, executable bits and contents of all files, bytecode left out. A link in it may
    lead to a folder that several tasks share. Raises BadTask for a file that can't be read."""
    digest = hashlib.sha256()
    try:
        linked = [one for one in directory.iterdir() if one.is_symlink() and one.is_dir()]
        for path in sorted(path for folder in (directory, *linked) for path in folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                executable = bool(path.stat().st_mode & 0o100)
                header = f"{path.relative_to(directory).as_posix()}\0{int(executable)}\0{path.stat().st_size}\0"
                digest.update(header.encode("utf-8", "surrogateescape"))
                with path.open("rb") as file:
                    for piece in iter(partial(file.read, 2**20), b""):
                        digest.update(piece)
    except OSError as error:
        raise _unreadable_task(directory, error) from None
    return digest.hexdigest()


def _digest(directory: str, defaults: Limits) -> str:
    """Return the digest of a task: what was found out of it without a network does not hold with one."""
    return hashlib.sha256(f"{directory}\0public".encode()).hexdigest() if defaults.network else directory


def _is_task(path: Path) -> bool:
    return (path / "task.toml").is_file()


def _unreadable_task(directory: Path, error: OSError) -> BadTask:
    return BadTask(f"task {directory.name}: {error.filename or 'one of its files'} can't be read: {error.strerror}")


def _read_directory(
    directory: Path, root: Path, defaults: Limits, digest: str | None = None
) -> tuple[Task, Sequence[str]]:
    """Return a task, and the remarks about it. root: the folder around all that may be linked. Raises BadTask."""
    directory = directory.resolve()
    try:
        check_links(directory, root)
        return _make_task(directory, defaults, digest)
    except OSError as error:
        raise _unreadable_task(directory, error) from None


def _make_task(directory: Path, defaults: Limits, digest: str | None) -> tuple[Task, Sequence[str]]:
    config = parse_config(read_text(directory, "task.toml"), f"task {directory.name}: task.toml")
    defaults = replace(defaults, capabilities=config.metadata.capabilities or defaults.capabilities)
    container = read_compose(directory / "environment", directory.name)
    if container.offline:
        config = config.offline()
    try:
        config.agent = shared_agent(config, defaults.network)
    except ValueError as problem:
        raise BadTask(f"task {directory.name}: task.toml: {problem}") from None
    source = Source(directory, config, defaults)
    metadata = config.own_metadata
    tags = [*config.metadata.tags, *map(metadata.get, ("band", "kind", "difficulty", "category"))]
    steps = read_steps(source)
    for path in (_PRIOR, *(f"steps/{step.name}/{_PRIOR}" for step in steps)):
        if (source.directory / path).exists():
            raise source.bad_task(f"{path}: a prior conversation isn't supported; remove it or skip this task")
    task = Task(
        id=directory.name,
        instruction="\n\n".join(step.instruction for step in steps) if steps else source.instruction(),
        hidden=combine_hidden(steps) if steps else _make_hidden(source),
        image=config.environment.docker_image,
        context=source.context(),
        workdir=config.environment.workdir or container.workdir,
        user=config.agent.user,
        env={**container.env, **source.fill_variables("environment", config.environment.env)},
        limits=limits(config.environment, config.agent, source.defaults),
        timeout_s=config.agent.timeout_sec,
        tags=tuple(dict.fromkeys(str(tag) for tag in tags if tag)),
        metadata={**metadata, "task": config.task},
        digest=_digest(digest or directory_digest(directory), defaults),
        steps=steps,
        last_counts=config.multi_step_reward_strategy == "final",
        mcp_servers=source.mcp_servers(),
        skills_dir=config.environment.skills_dir or None,
        service=source.service(container),
        health=source.health(),
    )
    left_out = [f"{what}; it is left out" for what in dict.fromkeys([*config.ignored_fields(), *_unused_files(source)])]
    left_out += dict.fromkeys(source.remarks)
    dockerfile = None if task.workdir or task.hidden.graded_alone else source.dockerfile("environment")
    return task, [*left_out, *([_NO_WORKDIR] if dockerfile is not None and dockerfile.workdir_of() else [])]


def _make_hidden(source: Source) -> Hidden:
    judged = hidden(source, [(source.config.verifier, source.folder("tests"))], source.config.artifacts)
    return replace(judged, solution=source.solution("solution"))


def _unused_files(source: Source) -> Iterator[str]:
    """Yield the parts of the task's files without effect here."""
    if any(source.directory.rglob(".harborignore")):
        yield ".harborignore is not followed, so files that it names are used"
    folder = source.folder("solution")
    if folder is not None and any(folder.iterdir()) and source.solution("solution") is None:
        yield "solution/ has no solve.sh"
    if (source.directory / "tests/Dockerfile").is_file() and not source.config.verifier.separate:
        yield 'tests/Dockerfile is not built without [verifier] environment_mode = "separate"'
