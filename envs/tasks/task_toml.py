"""The fields of a Harbor task's `task.toml`, checked: what is not known or not supported is refused."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from envs.types import BadTask
from sandboxes.hosts import AllowList

_UNSUPPORTED_FIELDS = {
    "gpus": "GPUs aren't supported; set gpus = 0 or skip this task",
    "tpu": "TPUs aren't supported; skip this task",
    "healthcheck": "health checks aren't supported; skip this task",
    "mcp_servers": "MCP servers aren't supported; skip this task",
    "skills_dir": "skills aren't supported; skip this task",
}


def parse_config(text: str, where: str) -> Config:
    """Read a task.toml. where: names it in messages. Raises BadTask, which names each field and its remedy."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadTask(f"{where} is not valid TOML: {error}") from None
    try:
        return Config.model_validate(table)
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


class Config(_Section):
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
    def _readable(self) -> Config:
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
