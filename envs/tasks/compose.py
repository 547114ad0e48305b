"""A docker-compose.yaml of one container, and its settings for the container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from envs.types import BadTask

NAME = "docker-compose.yaml"
"""Harbor's and terminal-bench's; a docker-compose.yml is a file of the task like any other."""
_HARMLESS = {
    *("build", "image", "command", "container_name", "environment", "volumes", "working_dir", "ports", "init", "tty"),
    *("stdin_open", "deploy", "mem_limit", "cpus", "platform", "pull_policy", "restart", "hostname", "network_mode"),
    "stop_signal",
}
"""Keys allowed in a service without effect: the sandbox has its own setting, or needs none."""


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """env: variables of the container. workdir: of its commands; None if not given."""

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None


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
    unknown = sorted(set(map(str, service)) - _HARMLESS)
    if unknown:
        raise BadTask(f"{where}: {', '.join(unknown)} can't be kept; put what it does into the Dockerfile")
    workdir = service.get("working_dir")
    if workdir is not None and not str(workdir).startswith("/"):
        raise BadTask(f"{where}: working_dir {workdir!r} is no absolute path; write one, such as /app")
    return ContainerSettings(_read_variables(service.get("environment")), workdir)


def read_yaml(path: Path, name: str) -> Any:
    """Return the content of a file of a task. name: the task's, for messages. Raises BadTask."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:  # of text that is no UTF-8, and of dates
        raise BadTask(f"task {name}: {path.name} is not YAML: {error}") from None


def _read_variables(given: Any) -> dict[str, str]:
    """Return variables from a table or a list of NAME=VALUE, without those to be filled by the host."""
    if isinstance(given, dict):
        pairs = {str(name): value for name, value in given.items()}
    else:
        pairs = {name: value for name, mark, value in (str(item).partition("=") for item in given or []) if mark}
    return {name: str(value) for name, value in pairs.items() if value is not None and "${" not in str(value)}
