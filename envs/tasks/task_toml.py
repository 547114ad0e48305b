"""The fields of a Harbor task's `task.toml`. All of Harbor's fields are read. `ignored_fields` names unknown fields and
those without effect here; a field is refused only if the reward would be wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from envs.judging.path_rules import refusal
from envs.types import BadTask, HealthCheck
from sandboxes.base import Capabilities
from sandboxes.hosts import AllowList

_UNSUPPORTED_FIELDS = {
    "gpus": "GPUs aren't supported; set gpus = 0 or skip this task",
    "tpu": "TPUs aren't supported; skip this task",
}
_DAY_S = 86_400.0
"""The stand-in for an infinite time: nothing waits for ever."""


def parse_config(text: str, where: str) -> Config:
    """Read a task.toml. where: its name in messages. Raises BadTask with each field and its remedy."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadTask(f"{where} is not valid TOML: {error}") from None
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        raise BadTask("; ".join(f"{where}: {_describe_problem(dict(problem))}" for problem in error.errors())) from None


def _describe_problem(problem: Mapping[str, Any]) -> str:
    *tables, key = [str(part) for part in problem["loc"]] or [""]
    field = f"[{'.'.join(tables)}] {key}" if tables else key
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


def _check_network(value: object) -> object:
    if value not in (None, "public", "no-network", "allowlist"):
        raise ValueError(f'{value!r} isn\'t supported; use "public", "no-network" or "allowlist"')
    return value


def _hosts(value: list[str]) -> list[str]:
    AllowList.of(value)
    return value


def _texts(value: object) -> object:
    """Return a list of texts, also from a single value."""
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


User = Annotated[str | None, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
SchemaVersion = Annotated[str, BeforeValidator(str)]
NetworkMode = Annotated[str | None, BeforeValidator(_check_network)]
Hosts = Annotated[list[str], AfterValidator(_hosts)]
Seconds = Annotated[float, Field(gt=0), AfterValidator(lambda seconds: min(seconds, _DAY_S))]
Pause = Annotated[float, Field(ge=0), AfterValidator(lambda seconds: min(seconds, _DAY_S))]
Megabytes = Annotated[int, Field(ge=0), BeforeValidator(_megabytes)]
Reach = tuple[bool, tuple[str, ...]]
"""Whether there is a network, and the reachable hosts without one."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow")

    def ignored_fields(self, where: str = "") -> Iterator[str]:
        """Yield the ignored fields. where: the table's name in the file, "" for the file."""
        for name in self.model_extra or {}:
            yield f"{_field_name(where, name)} is not a field that is known here"
        for name in type(self).model_fields:
            value = getattr(self, name)
            for section in value if isinstance(value, list) else [value]:
                if isinstance(section, _Section):
                    yield from section.ignored_fields(f"{where}.{name}".strip("."))


def _field_name(where: str, name: str) -> str:
    return f"[{where}] {name}" if where else name


class NetworkSection(_Section):
    """A table with optional network rules."""

    network_mode: NetworkMode = None
    allowed_hosts: Hosts | None = None

    @model_validator(mode="after")
    def _check_hosts_mode(self) -> NetworkSection:
        if self.allowed_hosts and self.network_mode != "allowlist":
            raise ValueError('allowed_hosts need network_mode = "allowlist" beside them')
        return self

    def reach(self, baseline: Reach) -> Reach:
        if self.network_mode is None:
            return baseline
        return self.network_mode == "public", tuple(self.allowed_hosts or ())


class Agent(NetworkSection):
    timeout_sec: Seconds | None = None
    user: User = None


class _Collect(_Section):
    command: str
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: User = None


class Artifact(_Section):
    source: Annotated[str, Field(min_length=1)]
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _parse_artifact(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value


class Healthcheck(_Section):
    command: str
    interval_sec: Pause = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Pause = 0.0
    start_interval_sec: Pause = 5.0
    retries: int = 3

    def settled(self, user: str | None = None) -> HealthCheck:
        return HealthCheck(
            self.command,
            user,
            self.timeout_sec,
            self.interval_sec,
            self.start_period_sec,
            self.start_interval_sec,
            self.retries,
        )


class Environment(NetworkSection):
    docker_image: str | None = None
    build_timeout_sec: float = 600.0
    os: str = "linux"
    cpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    memory_mb: Megabytes | None = Field(default=None, validation_alias=AliasChoices("memory_mb", "memory"))
    storage_mb: Megabytes | None = Field(default=None, validation_alias=AliasChoices("storage_mb", "storage"))
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    env: dict[str, str] = {}
    workdir: Annotated[Annotated[str, Field(pattern="^/")] | None, BeforeValidator(lambda path: path or None)] = None
    healthcheck: Healthcheck | None = None
    mcp_servers: list[Any] = []
    skills_dir: str | None = None
    allow_internet: bool | None = None

    @model_validator(mode="after")
    def _check_supported(self) -> Environment:
        if self.os.lower() != "linux":
            raise ValueError(f"os = {self.os!r} isn't supported; only Linux tasks run here")
        for name, remedy in _UNSUPPORTED_FIELDS.items():
            if getattr(self, name):
                raise ValueError(f"{name}: {remedy}")
        return self

    def reach(self, baseline: Reach) -> Reach:
        return super().reach(baseline if self.allow_internet is None else (self.allow_internet, ()))


class Verifier(NetworkSection):
    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: User = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: list[_Collect] = []

    @property
    def separate(self) -> bool | None:
        """Whether the verifier sees the artifacts alone; None if not given."""
        if self.environment_mode is not None:
            return self.environment_mode == "separate"
        return None if self.environment is None else True

    @model_validator(mode="after")
    def _check_consistent(self) -> Verifier:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError('environment_mode = "shared" contradicts [verifier.environment]; remove one of them')
        for hook in self.collect:
            if hook.service != "main":
                raise ValueError(f"[[verifier.collect]] service {hook.service!r}: several containers aren't supported")
        return self


class _Solution(_Section):
    env: dict[str, str] = {}


class StepTable(_Section):
    name: Annotated[str, Field(pattern=r"^[^/\\\x00-\x1f]*[^/\\\x00-\x1f. ]$")]
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: list[Artifact] = []


class _Metadata(_Section):
    """The fields of ours; any other is the task's own."""

    tags: Annotated[list[str], BeforeValidator(_texts)] = []
    protected_paths: list[str] = []
    graded_paths: list[str] | None = None
    capabilities: Capabilities | None = None
    judge: bool = False

    @model_validator(mode="after")
    def _check_gradable(self) -> _Metadata:
        for path in self.graded_paths or []:
            if (why := refusal(path)) is not None:
                raise ValueError(f"graded_paths: {path!r} {why}")
        return self

    def ignored_fields(self, where: str = "") -> Iterator[str]:
        return iter(())


class Config(_Section):
    schema_version: SchemaVersion = Field(default="1.4", validation_alias=AliasChoices("schema_version", "version"))
    task: dict[str, Any] = {}
    metadata: _Metadata = _Metadata()
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    environment: Environment = Environment()
    solution: _Solution = _Solution()
    source: str | None = None
    artifacts: list[Artifact] = []
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: list[StepTable] | None = None

    @model_validator(mode="after")
    def _check_step_names(self) -> Config:
        names = [step.name.casefold() for step in self.steps or []]
        if len(set(names)) < len(names):
            raise ValueError("[[steps]] name: two steps have the same; rename one")
        return self

    def offline(self) -> Config:
        """Return the same, in a container without a network: no phase in it has one. A separate verifier has a
        container of its own."""
        none = {"network_mode": None, "allowed_hosts": None}

        def shut(table: Config | StepTable, separate: bool | None) -> dict[str, Any]:
            verifier = table.verifier if separate else table.verifier.model_copy(update=none)
            return {"agent": table.agent.model_copy(update=none), "verifier": verifier}

        own = self.verifier.separate
        steps = [
            step.model_copy(update=shut(step, own if step.verifier.separate is None else step.verifier.separate))
            for step in self.steps or []
        ]
        environment = self.environment.model_copy(update=none | {"network_mode": "no-network"})
        return self.model_copy(update=shut(self, own) | {"environment": environment, "steps": steps or self.steps})

    @property
    def own_metadata(self) -> dict[str, Any]:
        """Return [metadata] as it was written."""
        return self.metadata.model_dump(exclude_unset=True)
