"""What every agent environment can be told: atroposlib's options with safe defaults, and ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from atroposlib.envs.base import BaseEnvConfig
from pydantic import ConfigDict, Field, model_validator

from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig

UNUSED = (
    "thinking_mode",
    "reasoning_effort",
    "max_reasoning_tokens",
    "custom_thinking_prompt",
    "worker_timeout",
    "eval_handling",
    "eval_limit_ratio",
    "max_eval_workers",
    "max_num_workers_per_node",
    "num_rollouts_to_keep",
    "min_batch_allocation",
    "num_rollouts_per_group_for_logging",
)
"""Options of atroposlib that this package has no use for. Setting one is refused, not ignored."""


class AgentEnvConfig(BaseEnvConfig):  # type: ignore[misc]  # atroposlib is untyped
    """Options of an environment in which agents work with tools."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    group_size: int = Field(default=8, ge=1, description="Rollouts of one task that are scored together")
    max_num_workers: int = Field(default=16, ge=1, description="Groups that are worked on at the same time, at most")
    max_concurrent_rollouts: int = Field(
        default=64,
        ge=1,
        description="Rollouts (and so sandboxes) that run at the same time, at most; within it their number follows "
        "the inference servers' load",
    )
    max_token_length: int = Field(
        default=8192, ge=64, description="Token budget of a rollout, prompt and replies together"
    )
    max_reply_tokens: int = Field(default=1024, ge=1, description="Token budget of one reply")
    max_steps: int = Field(default=20, ge=1, description="Turns in one rollout")
    rollout_timeout_s: float = Field(
        default=900.0,
        gt=0,
        description="Time of a rollout in seconds, of commands and of sampling at a fair speed; what there is then is "
        "graded",
    )
    request_timeout_s: float = Field(
        default=600.0, gt=0, description="Wall time of one request to the inference server in seconds"
    )
    temperature: float = Field(default=1.0, ge=0, description="Sampling temperature in training and process")
    top_p: float = Field(default=1.0, gt=0, le=1, description="Nucleus sampling threshold")
    tool_format: str = Field(default="hermes", description="How the model calls tools: hermes, or package.module:Class")
    agent: str = Field(
        default="atropos",
        description="What works on a task: atropos, or package.module:Class that is made as AtroposAgent is",
    )
    reward: str = Field(
        default="",
        description="What a rollout is worth in training, as package.module:function of (task, outcome); empty for the "
        "environment's own",
    )
    tool_role: Literal["user", "tool"] = Field(
        default="user", description='Chat role that carries tool results; "tool" for Hermes models'
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default={}, description='Variables of the chat template, such as {"enable_thinking": false}'
    )
    fold_system: bool = Field(
        default=False,
        description="Put the system prompt in front of the first user message, where the template moves or drops it",
    )
    system_prompt: str | None = Field(default=None, description="Replaces the first lines of the system prompt")
    attempts: int = Field(
        default=3, ge=1, description="How often a rollout that failed by our fault is tried before its task is put back"
    )
    task_failures: int = Field(
        default=3, ge=1, description="How often a task's group may be put back before the task is quarantined"
    )
    failure_rate: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of rollouts that may fail by our fault before fewer are started",
    )
    overtime_s: float = Field(
        default=3600.0,
        gt=0,
        description="Seconds that a rollout may take beyond its own time and its verifier's before it counts as hung",
    )
    equal_rewards: Literal["drop", "send", "resample"] = Field(
        default="drop", description="What becomes of a group whose rewards are all equal; resample tries twice more"
    )
    max_stale_steps: int = Field(
        default=16, ge=0, description="Trainer steps after which a group that was not delivered is kept aside instead"
    )
    outbox_mb: int = Field(
        default=2048, ge=1, description="Size of undelivered groups on disk at which no new rollouts are started"
    )
    shutdown_s: float = Field(
        default=3.0, ge=0, description="Seconds that running rollouts have to finish after SIGTERM or Ctrl-C"
    )
    run_dir: Path | None = Field(
        default=None,
        description="Directory of the run; a start with the directory of an earlier one continues that run. A new one "
        "under runs/ when not given",
    )
    seed: int = Field(default=0, description="Seed of the order of tasks")
    tokenizer_name: str = Field(
        default="",
        description="Tokenizer (a folder or a hub name); empty takes the one that the inference server names",
    )
    use_wandb: bool = Field(default=False, description="Log to Weights & Biases")
    include_messages: bool = Field(default=False, description="Send the chat messages to the trainer as well")
    max_batches_offpolicy: int = Field(
        default=3, ge=1, description="Batches in the trainer's queue at which new groups wait"
    )
    steps_per_eval: int = Field(default=0, ge=0, description="Trainer steps between evaluations; 0 for none")
    eval_samples: int = Field(default=1, ge=1, description="Rollouts of each task in an evaluation")
    eval_temperature: float = Field(default=0.0, ge=0, description="Sampling temperature in evaluations")
    eval_ks: list[int] = Field(default=[1], description="The k of each pass@k to report; each at most eval_samples")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unused(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name in UNUSED:
                if name in values and values[name] != cls.model_fields[name].default:
                    raise ValueError(f"{name} has no effect in this environment; remove it")
        return values

    @model_validator(mode="after")
    def _consistent(self) -> AgentEnvConfig:
        if self.max_reply_tokens >= self.max_token_length:
            raise ValueError(
                f"max_reply_tokens ({self.max_reply_tokens}) must be smaller than "
                f"max_token_length ({self.max_token_length})"
            )
        if self.inference_weight <= 0:
            raise ValueError(f"inference_weight must be positive, it is {self.inference_weight}: the API divides by it")
        if not self.ensure_scores_are_not_same:
            self.equal_rewards = "send"  # atroposlib's name for it
        if max(self.eval_ks) > self.eval_samples:
            raise ValueError(f"eval_ks needs eval_samples >= {max(self.eval_ks)}, it is {self.eval_samples}")
        return self

    def agent_config(self, *, max_total_tokens: int, evaluating: bool = False, **more: Any) -> AgentConfig:
        """Return the agent's part of these options; `more` are fields of AgentConfig that differ."""
        own = AgentConfig(
            temperature=self.eval_temperature if evaluating else self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_reply_tokens,
            max_steps=self.max_steps,
            max_total_tokens=max_total_tokens,
            max_seconds=self.rollout_timeout_s,
            system_prompt=self.system_prompt,
            request_timeout_s=self.request_timeout_s,
            tool_role=self.tool_role,
        )
        return replace(own, **more)

    def chat_template(self, tokenizer: Any) -> ChatTemplate:
        """Return the tokenizer's chat template as the options want it. Raises ValueError when it can't be used."""
        return ChatTemplate(tokenizer, fold_system=self.fold_system, **self.chat_template_kwargs)
