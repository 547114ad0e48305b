"""Options of the software engineering environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from envs.config import AgentEnvConfig, Count, Natural, check_if_given
from sandboxes.arguments import web_address
from sandboxes.e2b.options import E2BOptions
from sandboxes.kubernetes.options import PodOptions


class SWEEnvConfig(AgentEnvConfig):
    """Options of the software engineering environment."""

    essential: ClassVar[Sequence[str]] = ("tasks", "tools", *AgentEnvConfig.essential)
    for_python: ClassVar[Sequence[str]] = (*AgentEnvConfig.for_python, "keep_work_mb", "difficulty_rollouts")
    for_training: ClassVar[Sequence[str]] = ("tags", "unwatched", "difficulty_from")
    needing: ClassVar[Mapping[str, Sequence[str]]] = {
        **AgentEnvConfig.needing,
        "judge": ("judge_model", "judge_key", "judge_requests"),
    }

    tasks: str = "starter"
    """Folder of Harbor task directories, or "starter" for the built-in pack"""
    tags: list[str] = Field(default=[])
    """Train only on tasks with one of these tags (terminal, bugfix, multifile, …) or ids; empty for all"""
    skip_tags: list[str] = Field(default=[])
    """Use no task with one of these tags or ids"""
    bad_tasks: Literal["skip", "refuse"] = "skip"
    """Skip and list unusable tasks, or end the run"""
    default_network: Literal["no-network", "public"] = "no-network"
    """Network of tasks without network settings; in Harbor it is public"""
    unwatched: Literal["use", "refuse"] = "use"
    """Use or refuse training tasks that are unwatched or judged in place (docs/reward.md)"""
    manifest: Path | None = None
    """Manifest of `tasks check`: failed and changed tasks are not used; by default the one in the tasks' folder"""
    shard: str = "1/1"
    """This process's part of the tasks, for training and evaluation, as "2/4"; parts don't overlap (docs/ray.md)"""
    eval_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the tasks held out for evaluation, if there are no eval_tasks"""
    difficulty_from: list[Path] = Field(default=[])
    """Directories of earlier runs: skip tasks always or never solved there"""
    difficulty_rollouts: Count = 8
    """Least rollouts of a task for difficulty_from"""
    eval_tasks: str = ""
    """Folder of the evaluation's tasks; empty for `tasks`"""
    eval_tags: list[str] = Field(default=[])
    """Evaluate only on tasks with one of these tags or ids; empty for all"""
    tools: list[str] = Field(
        default=["terminal", "view", "create", "replace", "insert", "search", "find", "submit"], min_length=1
    )
    """Tools of the agent, in their order; package.module:name for your own; settings follow a colon, as in
    terminal:timeout=300"""
    mcp_servers: Path | None = None
    """File with MCP servers for every task: JSON or YAML with `mcpServers` (docs/mcp.md)"""
    judge: Annotated[str, check_if_given(web_address)] = ""
    """Address, with /v1, of the model that judges in tasks with a judge (docs/judges.md)"""
    judge_model: str = ""
    """Name of the judge model; empty for the task's own"""
    judge_key: str = ""
    """Name of the environment variable with the judge model's key"""
    judge_requests: Count = 32
    """Most requests to the judge model for one verdict"""
    sandbox: str = "docker"
    """Backend of the sandboxes: docker, kubernetes, e2b, or package.module:factory of your own"""
    pods: PodOptions = Field(default_factory=PodOptions)
    """Options of pods, for --env.sandbox kubernetes (docs/pods.md)"""
    e2b: E2BOptions = Field(default_factory=E2BOptions)
    """Options of the server, for --env.sandbox e2b (docs/e2b.md)"""
    keep_work_mb: Annotated[float, Field(ge=0, le=128)] = 1.0
    """Largest compressed size of an agent's work saved with its rollout for `rejudge`; 0 saves none"""
    hosts: str | None = None
    """Docker hosts of the sandboxes, such as ssh://a,ssh://b or a YAML file; by default this machine's Docker daemon
    (docs/hosts.md)"""
    base_image: str | None = None
    """Image in place of those in the `FROM` of the tasks' Dockerfiles, if these can't be pulled"""
    warm_sandboxes: Natural = 0
    """Containers started ahead, of each recently used kind and of the next task's"""
    sandbox_runtime: str | None = None
    """Container runtime, such as runsc (gVisor); empty for the Docker daemon's default"""
    sandbox_starter: Literal["docker", "crun"] | None = None
    """Starter of containers: the Docker daemon, or crun beside it, with less CPU; by default crun if possible (`doctor`
    names it)"""
