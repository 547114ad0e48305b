"""Options of the software engineering environment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from envs.config import AgentEnvConfig
from envs.rewards import Shaping


class SWEEnvConfig(AgentEnvConfig):
    """Options of the software engineering environment."""

    tasks: str = Field(
        default="starter", description='Folder of Harbor task directories, or "starter" for the built-in pack'
    )
    tags: list[str] = Field(
        default=[],
        description="Train only on tasks with one of these tags (terminal, bugfix, multifile, …); empty for all",
    )
    skip_tags: list[str] = Field(default=[], description="Use no task with one of these tags")
    bad_tasks: Literal["skip", "refuse"] = Field(
        default="skip", description="What becomes of tasks that can't be used: left out and listed, or the run ends"
    )
    unwatched: Literal["use", "refuse"] = Field(
        default="use",
        description="What becomes of tasks whose tests neither pytest nor unittest runs, so that the word of their "
        "test.sh is the reward (docs/reward.md)",
    )
    manifest: Path | None = Field(
        default=None,
        description="Manifest of `tasks check`: tasks that failed it or have changed since are not used; "
        "the one in the folder of the tasks when not given",
    )
    shard: str = Field(
        default="1/1",
        description='Which part of the tasks this process takes, to train and to evaluate on, as "2/4"; parts don\'t '
        "overlap (docs/ray.md)",
    )
    eval_share: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the tasks that is held out and evaluated on, without eval_tasks"
    )
    difficulty_from: list[Path] = Field(
        default=[], description="Directories of earlier runs: train on no task that was always or never solved there"
    )
    difficulty_rollouts: int = Field(default=8, ge=1, description="Rollouts after which difficulty_from believes that")
    shaping: Shaping = Field(default=Shaping(), description="Rewards other than all or nothing")
    eval_tasks: str = Field(default="", description="Folder of the tasks to evaluate on; empty for the same as `tasks`")
    eval_tags: list[str] = Field(default=[], description="Evaluate only on tasks with one of these tags; empty for all")
    tools: list[str] = Field(
        default=["terminal", "view", "create", "replace", "insert", "search", "find", "submit"],
        min_length=1,
        description="Tools of the agent, in the order in which they are shown to it; package.module:name for one's own",
    )
    sandbox: str = Field(
        default="docker", description="What makes the sandboxes: docker, or package.module:factory of a backend"
    )
    keep_work_mb: float = Field(
        default=1.0,
        ge=0,
        le=128,
        description="Size, compressed, up to which what an agent made is saved with its rollout, so that `rejudge` can "
        "judge it again; 0 saves none",
    )
    hosts: str | None = Field(
        default=None,
        description="Docker hosts to make the sandboxes on, such as ssh://a,ssh://b or a YAML file; this machine's "
        "Docker daemon when not given (docs/hosts.md)",
    )
    base_image: str | None = Field(
        default=None, description="Image that replaces the one in the tasks' `FROM`, where theirs can't be pulled"
    )
    warm_sandboxes: int = Field(
        default=0,
        ge=0,
        description="Containers of each kind, lately used or the next task's, that stand ready before they are needed",
    )
    sandbox_runtime: str | None = Field(
        default=None,
        description="What runs the containers, such as runsc (gVisor); empty for the Docker daemon's default",
    )
    sandbox_starter: Literal["docker", "crun"] | None = Field(
        default=None,
        description="What starts them: docker for the Docker daemon, crun past it, which costs less; empty for crun "
        "where that is possible (`doctor` says so), and else docker",
    )
