"""A docker-compose.yaml of one container, and its settings for the container."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from envs.types import BadTask

NAME = "docker-compose.yaml"
"""Harbor's and terminal-bench's; a docker-compose.yml is a file of the task like any other."""
_READ = {"build", "command", "entrypoint", "environment", "network_mode", "volumes", "working_dir"}
_HARMLESS = {
    *("image", "container_name", "ports", "expose", "init", "tty", "stdin_open", "deploy", "mem_limit", "cpus"),
    *("memswap_limit", "shm_size", "platform", "pull_policy", "restart", "hostname", "networks", "stop_signal"),
    *("stop_grace_period", "labels", "logging", "cap_drop"),
}
"""Keys allowed in a service without effect: the sandbox has its own setting, or needs none."""
_DOCKERFILES = {"Dockerfile", "./Dockerfile", "${CONTEXT_DIR}/Dockerfile"}
_WAITS = re.compile(r"((/bin/|/usr/bin/)?(ba)?sh( -l?c)? ?)?((exec )?(sleep (infinity|\d+\w?)|tail -f /dev/null))?")
_DEFAULT = re.compile(r"\$\{\w+:?-([^}]*)\}")


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """env: variables of the container. workdir: of its commands; None if not given. entrypoint: in place of the
    image's; None for that. command: its arguments; None for nothing but waiting. offline: whether it has no network,
    whatever task.toml says."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    offline: bool = False


def read_compose(folder: Path, name: str) -> ContainerSettings:
    """Read the folder's docker-compose.yaml, if it has one.

    name: the task's, for messages. Raises BadTask for several containers, or for features beyond one container."""
    path, where = folder / NAME, f"task {name}: {NAME}"
    if not path.is_file():
        return ContainerSettings()
    table = read_yaml(path, name) or {}
    services = table.get("services") or {} if isinstance(table, dict) else None
    if not isinstance(services, dict) or len(services) > 1:
        raise BadTask(f"{where}: there must be one service; several containers aren't supported")
    service = next(iter(services.values()), None) or {}
    if not isinstance(service, dict) or not isinstance(service.get("environment") or {}, dict | list):
        raise BadTask(f"{where}: a service is a table, and its environment a table or a list of NAME=VALUE")
    unknown = sorted(key for key in set(map(str, service)) - _HARMLESS - _READ if not _is_plain(key, service.get(key)))
    if unknown:
        raise BadTask(f"{where}: {', '.join(unknown)} can't be kept; remove it, or put what it does in the Dockerfile")
    workdir = service.get("working_dir")
    if workdir is not None and not str(workdir).startswith("/"):
        raise BadTask(f"{where}: working_dir {workdir!r} is no absolute path; write one, such as /app")
    _check_build(folder, service.get("build"), where)
    _check_volumes(folder, service.get("volumes") or [], where)
    command, entrypoint = map(_read_command, (service.get("command"), service.get("entrypoint")))
    offline = service.get("network_mode") == "none"
    return ContainerSettings(_read_variables(service.get("environment")), workdir, entrypoint, command or None, offline)


def _is_plain(key: str, value: Any) -> bool:
    """Tell whether a key has no effect with this value: memory of the usual places, or rights that nothing here has."""
    words = tuple(map(str, value if isinstance(value, list) else [value]))
    if key == "tmpfs":
        return all(word in ("/tmp", "/run", "/var/run", "/var/tmp", "/dev/shm") for word in words)
    return key == "security_opt" and all(word.startswith(("label", "no-new-privileges")) for word in words)


def _check_build(folder: Path, build: Any, where: str) -> None:
    """Raise BadTask unless the image is the one of the folder's Dockerfile."""
    table = build if isinstance(build, dict) else {"context": build or "."}
    context, name = str(table.get("context", ".")), str(table.get("dockerfile", "Dockerfile"))
    if not (context.startswith("${") or (folder / context).resolve() == folder.resolve()) or name not in _DOCKERFILES:
        raise BadTask(f"{where}: build: the image of {context} by {name} can't be made; use Dockerfile in this folder")
    if more := sorted(set(map(str, table)) & {"args", "target", "additional_contexts", "dockerfile_inline", "secrets"}):
        raise BadTask(f"{where}: build: {', '.join(more)} can't be kept; put what it does into the Dockerfile")


def _check_volumes(folder: Path, volumes: Any, where: str) -> None:
    """Raise BadTask for files of the task, or of this machine, in the container. What a folder without files, or one
    that is named by a variable, brings is nothing, or the logs."""
    for one in volumes if isinstance(volumes, list) else [volumes]:
        source = str(one.get("source") or "") if isinstance(one, dict) else str(one).partition(":")[0]
        inside = folder / source
        empty = not inside.exists() or (inside.is_dir() and not any(inside.iterdir()))
        if source.startswith(("/", "~")) or (source.startswith(".") and not empty):
            raise BadTask(f"{where}: volumes: {source} can't be mounted; put a COPY of it into the Dockerfile")


def _read_command(given: Any) -> tuple[str, ...] | None:
    """Return a command's words, none of one that only waits; None if it is not given."""
    if given is None:
        return None
    try:
        words = list(map(str, given)) if isinstance(given, list) else shlex.split(str(given))
    except ValueError:  # a quote without an end: Compose refuses it, too
        words = [str(given)]
    return () if _WAITS.fullmatch(" ".join(words)) else tuple(word.replace("$$", "$") for word in words)


def read_yaml(path: Path, name: str) -> Any:
    """Return the content of a file of a task. name: the task's, for messages. Raises BadTask."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # of text that is no UTF-8, and of dates
        raise BadTask(f"task {name}: {path.name} is not YAML: {error}") from None


def _read_variables(given: Any) -> dict[str, str]:
    """Return variables from a table or a list of NAME=VALUE, with their defaults, and without those to be filled by the
    host."""
    if isinstance(given, dict):
        pairs = {str(name): value for name, value in given.items()}
    else:
        pairs = {name: value for name, mark, value in (str(item).partition("=") for item in given or []) if mark}
    filled = {name: _DEFAULT.sub(r"\1", str(value)) for name, value in pairs.items() if value is not None}
    return {name: value for name, value in filled.items() if "${" not in value}
