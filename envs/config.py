"""What every agent environment can be told: atroposlib's options with safe defaults, and ours.

The class stands for atroposlib's `BaseEnvConfig` without being one: to import that takes seconds, before anything could
be said about a misspelt option. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from atropos_agent.types import AgentConfig
from sandboxes.arguments import host_port, loopback, web_address

if TYPE_CHECKING:
    from atropos_agent.tokens.template import ChatTemplate

UNUSED: Mapping[str, Any] = MappingProxyType(
    {
        "thinking_mode": False,
        "reasoning_effort": None,
        "max_reasoning_tokens": None,
        "custom_thinking_prompt": None,
        "worker_timeout": 600,
        "eval_handling": "STOP_TRAIN",
        "eval_limit_ratio": 0.5,
        "max_eval_workers": 16,
        "max_num_workers_per_node": 8,
        "num_rollouts_to_keep": 32,
        "min_batch_allocation": None,
        "num_rollouts_per_group_for_logging": 1,
        "batch_size": -1,
        "min_items_sent_before_logging": 2,
    }
)
"""Options of atroposlib that this package has no use for, with its defaults. Setting one is refused, not ignored."""


Condition = Literal[
    "model",
    "tokenizer",
    "template",
    "temperature",
    "top_p",
    "system_prompt",
    "history",
    "compaction",
    "tool_format",
    "tool_role",
    "agent",
    "reward",
    "tools",
    "shaping",
    "estimator",
    "length_penalty",
]
"""What decides how a run's rollouts are made, and stays the same over its starts."""

NO_EFFECT = "has no effect in this environment; remove it"


def _not_zero(steps: int) -> int:
    if steps == 0:
        raise ValueError("nothing would be done; give a number of steps, or leave it out")
    return steps


def _web_address_or_none(url: str) -> str:
    return web_address(url) if url else url


def _socket_or_none(address: str) -> str:
    return host_port(address) if address else address


def _loopback_or_none(address: str) -> str:
    return loopback(address) if address else address


LARGEST = 2**53
"""Of numbers: beyond it they are not exact everywhere they go (JSON, SQLite)."""


def _at_home(value: Any) -> Any:
    """Return a path with the home directory for `~`, which shells leave in --option=~/path; anything else as it is."""
    try:
        if isinstance(value, Path):
            return value.expanduser()
        return str(Path(value).expanduser()) if isinstance(value, str) and value.startswith("~/") else value
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _torn(value: Any) -> bool:
    """Tell whether a text, a path or what holds them has halves of surrogate pairs: Python's signs for such bytes."""
    if isinstance(value, Mapping):
        return any(_torn(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return any(map(_torn, value))
    return isinstance(value, str | Path) and any("\ud800" <= sign <= "\udfff" for sign in str(value))


class Told(BaseModel):
    """What a user may set by name: nothing else, no value that is empty by mistake, no number that is none.

    unused: names that atroposlib has and that mean nothing here, with its defaults. sections: what `--help` shows
    together, by title; what a subclass adds is a section of its own, before them. The other options are explained by
    `--help-all`.
    """

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)

    unused: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    sections: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType({})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return atroposlib's default of an option that is not used: its base classes read some."""
            return type(self).unused[name] if name in type(self).unused else super().__getattr__(name)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unused(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if useless := cls.useless(values):
            raise ValueError("; ".join(f"{name} {NO_EFFECT}" for name in useless))
        return {name: value for name, value in values.items() if name not in cls.unused}

    @classmethod
    def useless(cls, values: Mapping[str, Any]) -> list[str]:
        """Return what is set to another value than atroposlib's, and means nothing here."""
        given = {name: values[name] for name in cls.unused if name in values}
        return [name for name, value in given.items() if str(getattr(value, "value", value)) != str(cls.unused[name])]

    @field_validator("*", mode="before")
    @classmethod
    def _not_empty(cls, value: Any, info: ValidationInfo) -> Any:
        default = cls.model_fields[info.field_name].default if info.field_name in cls.model_fields else None
        if isinstance(value, str) and not value.strip() and default != "":
            raise ValueError("it is empty; give a value, or leave it out")
        if isinstance(value, list | tuple) and any(isinstance(item, str) and not item.strip() for item in value):
            raise ValueError("one of its items is empty; leave that out")
        return value

    @field_validator("*")
    @classmethod
    def _usable(cls, value: Any) -> Any:
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise ValueError(f"it is too large; give at most {LARGEST}")
        if _torn(value):
            raise ValueError("some of its bytes are not UTF-8")
        if isinstance(value, list):
            return [_at_home(item) for item in value]
        return _at_home(value)


class RayOptions(Told):
    """Where and how worker processes run on Ray."""

    address: str = Field(
        default="auto",
        description="Ray cluster, as HOST:PORT of its head; auto for the one that this machine belongs to",
    )
    workers: int = Field(default=1, ge=1, description="Worker processes on each node")
    rollouts: int = Field(default=64, ge=1, description="Rollouts in one worker process at the same time, at most")
    resources: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={"CPU": 1.0},
        min_length=1,
        description="What a worker process asks of its node, as CPU=2,docker=1; nodes that have less are not used",
    )

    @field_validator("address")
    @classmethod
    def _not_a_client(cls, value: str) -> str:
        if "://" in value:
            raise ValueError("no such protocol is used; start this on a machine of the cluster, and give HOST:PORT")
        return value


class AgentEnvConfig(Told):
    """Options of an environment in which agents work with tools."""

    unused = UNUSED
    sections: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType(
        {
            "Rollouts": (
                *("max_steps", "max_token_length", "max_reply_tokens", "rollout_timeout_s", "request_timeout_s"),
                *("temperature", "top_p", "system_prompt", "compaction", "trains_summaries"),
            ),
            "Model": ("tokenizer_name", "chat_template_kwargs", "tool_format", "tool_role", "fold_system"),
            "Groups and the trainer": (
                *("group_size", "estimator", "length_penalty", "total_steps", "rollout_server_url", "equal_rewards"),
                *("max_stale_steps", "max_batches_offpolicy", "include_messages"),
            ),
            "Evaluation": ("eval_samples", "eval_temperature", "eval_ks", "eval_lost", "steps_per_eval"),
            "The run": (
                *("run_dir", "allow_change", "seed", "max_concurrent_rollouts", "max_num_workers"),
                *("attempts", "task_failures", "failure_rate", "overtime_s", "outbox_mb", "shutdown_s"),
            ),
            "Many machines": ("workers", "ray"),
            "Watching it": ("track", "use_wandb", "wandb_name", "live", "otlp_url", "otlp_content", "prometheus"),
            "Parts of your own": ("agent", "reward"),
        }
    )

    group_size: int = Field(default=8, ge=1, description="Rollouts of one task that are scored together")
    estimator: Literal["group-std", "group-mean", "leave-one-out"] = Field(
        default="group-std",
        description="How advantages are made of a group's rewards: less their mean, divided by their standard "
        "deviation; less their mean; less the mean of the others",
    )
    length_penalty: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of a reward above 0 that the longest rollouts of a group lose in the advantage",
    )
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
    workers: Literal["process", "ray"] = Field(
        default="process",
        description="Where rollouts are made: in this process, or in worker processes on the nodes of a Ray cluster "
        "(docs/ray.md)",
    )
    ray: RayOptions = Field(default=RayOptions(), description="The Ray cluster")
    tool_format: str = Field(
        default="auto",
        description="How the model calls tools: auto takes what its chat template writes, or text where nothing reads "
        "that; template refuses then; else a name of docs/formats.md, or package.module:Class",
    )
    history: Literal["template", "sampled"] = Field(
        default="template",
        description="Whether earlier turns are what the chat template makes of them, or stay as they were sampled "
        "where it would drop their thinking",
    )
    compaction: Literal["none", "cut", "summary", "notes"] = Field(
        default="none",
        description="What our agent does where little room is left: cut old results, go on from the model's summary, "
        "or begin again with its notes in a file (docs/compaction.md)",
    )
    trains_summaries: bool = Field(default=True, description="Whether the tokens of summaries are trained")
    agent: str = Field(
        default="atropos",
        description="What works on a task: atropos, or package.module:Class that is made as AtroposAgent is; envs.swe "
        "also knows codex, claude-code, opencode, pi, mini-swe-agent, qwen-code and files (docs/agents.md)",
    )
    reward: str = Field(
        default="",
        description="What a rollout is worth in training, as package.module:function of (task, outcome); empty for the "
        "environment's own",
    )
    tool_role: Literal["auto", "user", "tool"] = Field(
        default="auto",
        description="Chat role that carries tool results: auto leaves tools, calls and results to the chat template "
        "where it knows them; user and tool make text of them all",
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default={}, description="Variables of the chat template, such as enable_thinking=false"
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
    allow_change: list[Condition] = Field(
        default=[],
        description="What may differ from the earlier starts of the run in run_dir, such as model,temperature; else a "
        "start under other conditions is refused",
    )
    seed: int = Field(default=0, description="Seed of the order of tasks")
    tokenizer_name: str = Field(
        default="",
        description="Tokenizer (a folder or a hub name); empty takes the one that the inference server names",
    )
    track: list[Literal["wandb", "trackio", "tensorboard"]] = Field(
        default=[], description="Where figures of training and evaluations are logged: wandb, trackio, tensorboard"
    )
    use_wandb: bool = Field(default=False, description="atroposlib's name for track wandb")
    wandb_name: str | None = Field(
        default=None, description="Name of the run where it is tracked, and at the trainer API"
    )
    otlp_url: Annotated[str, AfterValidator(_web_address_or_none)] = Field(
        default="", description="Where an OpenTelemetry receiver takes spans by OTLP over HTTP; empty for nowhere"
    )
    otlp_content: bool = Field(default=False, description="Whether spans hold what was said and what tools answered")
    live: Annotated[str, AfterValidator(_loopback_or_none)] = Field(
        default="",
        description="HOST:PORT of this machine at which the page shows the run, such as 127.0.0.1:8900; empty for none",
    )
    prometheus: Annotated[str, AfterValidator(_socket_or_none)] = Field(
        default="", description="HOST:PORT at which Prometheus finds /metrics, such as 127.0.0.1:9464; empty for none"
    )
    rollout_server_url: Annotated[str, AfterValidator(web_address)] = Field(
        default="http://localhost:8000", description="Where the trainer API answers"
    )
    total_steps: Annotated[int, AfterValidator(_not_zero)] = Field(
        default=1000,
        ge=-1,
        description="serve: the trainer's step at which the run ends, -1 for as many as the trainer takes; "
        "process: groups to make",
    )
    inference_weight: float = Field(
        default=1.0, gt=0, description="Share of the batches, beside other environments at the same trainer API"
    )
    ensure_scores_are_not_same: bool = Field(
        default=True, description="atroposlib's name for equal_rewards: false sends groups whose rewards are all equal"
    )
    data_path_to_save_groups: str | None = Field(
        default=None, description="File of groups; process writes groups.jsonl in run_dir when not given, serve none"
    )
    data_dir_to_save_evals: str | None = Field(
        default=None, description="Directory in which atroposlib's own file of an evaluation is written as well"
    )
    include_messages: bool = Field(default=False, description="Send the chat messages to the trainer as well")
    max_batches_offpolicy: int = Field(
        default=3, ge=1, description="Batches in the trainer's queue at which new groups wait"
    )
    steps_per_eval: int = Field(default=0, ge=0, description="Trainer steps between evaluations; 0 for none")
    eval_samples: int = Field(default=1, ge=1, description="Rollouts of each task in an evaluation")
    eval_temperature: float = Field(default=0.0, ge=0, description="Sampling temperature in evaluations")
    eval_ks: list[Annotated[int, Field(ge=1)]] = Field(
        default=[1], min_length=1, description="The k of each pass@k to report; each at most eval_samples"
    )
    eval_lost: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of an evaluation's samples that may be lost by our fault; evaluate ends with status 1 where "
        "more are, or all",
    )

    @model_validator(mode="after")
    def _consistent(self) -> AgentEnvConfig:
        problems = []
        if self.max_reply_tokens >= self.max_token_length:
            problems.append(
                f"max_reply_tokens ({self.max_reply_tokens}) must be smaller than "
                f"max_token_length ({self.max_token_length})"
            )
        if max(self.eval_ks) > self.eval_samples:
            problems.append(f"eval_ks needs eval_samples >= {max(self.eval_ks)}, it is {self.eval_samples}")
        if not self.ensure_scores_are_not_same:
            if "equal_rewards" in self.model_fields_set and self.equal_rewards != "send":
                problems.append(
                    "ensure_scores_are_not_same false means equal_rewards send, "
                    f"which is {self.equal_rewards}; leave one of them out"
                )
            self.equal_rewards = "send"  # atroposlib's name for it
        if problems:
            raise ValueError("; ".join(problems))
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
            tool_role="user" if self.tool_role == "auto" else self.tool_role,
            history=self.history,
            compaction=self.compaction,
            trains_summaries=self.trains_summaries,
        )
        return replace(own, **more)

    @property
    def trackers(self) -> list[str]:
        """Return where figures are logged, by name."""
        return list(dict.fromkeys([*self.track, *(["wandb"] if self.use_wandb else [])]))

    def chat_template(self, tokenizer: Any) -> ChatTemplate:
        """Return the tokenizer's chat template as the options want it. Raises ValueError when it can't be used."""
        from atropos_agent.tokens.template import ChatTemplate  # takes its time, which a misspelt option need not

        return ChatTemplate(tokenizer, fold_system=self.fold_system, **self.chat_template_kwargs)
