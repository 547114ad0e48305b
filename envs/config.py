"""Hold the options of every agent environment: atroposlib's with safe defaults, and ours.

The class replaces atroposlib's `BaseEnvConfig`, because its import takes seconds, and a misspelt option should be
reported at once. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from atropos_agent.types import AgentConfig
from sandboxes.arguments import host_port, loopback, web_address
from sandboxes.naming import lazy_import

if TYPE_CHECKING:
    from atropos_agent.tokens.template import ChatTemplate

_TEMPLATE = lazy_import("atropos_agent.tokens.template:ChatTemplate")

UNUSED: Mapping[str, Any] = MappingProxyType(
    dict(thinking_mode=False, reasoning_effort=None, max_reasoning_tokens=None, custom_thinking_prompt=None)
    | dict(worker_timeout=600, eval_handling="STOP_TRAIN", eval_limit_ratio=0.5, max_eval_workers=16)
    | dict(max_num_workers_per_node=8, num_rollouts_to_keep=32, min_batch_allocation=None, batch_size=-1)
    | dict(num_rollouts_per_group_for_logging=1, min_items_sent_before_logging=2)
)
"""Unused options of atroposlib, with its defaults. Another value is refused, not ignored."""

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]

Condition = Literal[
    "environment",
    "model",
    "tokenizer",
    "template",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "system_prompt",
    "history",
    "compaction",
    "tool_format",
    "tool_role",
    "agent",
    "reward",
    "tools",
    "estimator",
    "length_penalty",
    "summary_weight",
    "teacher_model",
    "teacher_top_k",
    "teacher_weight",
]
"""Conditions of a run's rollouts; they stay the same over its starts."""

NO_EFFECT = "has no effect in this environment; remove it"
REMOVED = {
    "env.shaping": "it was removed; use --env.reward (docs/reward.md)",
    "env.curriculum": "it was removed; each task comes once an epoch (docs/options.md)",
}
"""Options of earlier versions, with their successors, as docs/options.md has them."""
IN_PYTHON = "is set only in Python, as the default of a subclass of the options (docs/options.md)"


def _check_not_zero(steps: int) -> int:
    if steps == 0:
        raise ValueError("nothing would be done; give a number of steps, or leave it out")
    return steps


def check_if_given(check: Callable[[str], str]) -> AfterValidator:
    """Return the check of a text that may be empty."""
    return AfterValidator(lambda text: check(text) if text else text)


MOST_MEMBERS = 10_000
"""Most rollouts of a group."""
LARGEST = 2**53
"""Largest number: beyond it some places are not exact (JSON, SQLite)."""


def _expand_home(value: Any) -> Any:
    """Return a path with the home directory for `~` (shells leave it in --option=~/path); anything else as it is."""
    try:
        if isinstance(value, Path):
            return value.expanduser()
        return str(Path(value).expanduser()) if isinstance(value, str) and value.startswith("~/") else value
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def has_surrogates(value: Any) -> bool:
    """Tell whether a text, a path or a container of them has halves of surrogate pairs: Python's signs for torn
    bytes."""
    if isinstance(value, Mapping):
        return any(has_surrogates(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return any(map(has_surrogates, value))
    return isinstance(value, str | Path) and any("\ud800" <= sign <= "\udfff" for sign in str(value))


def describe_cut_off(sampling: Mapping[str, Any]) -> str | None:
    """Return the ways in which sampling cuts tokens off the model's distribution, in words; None without any.

    The remaining tokens get all the mass: a server's logprobs are then higher than a trainer's at every token, or of
    another distribution than the sampling's.
    sampling: by `AgentConfig`'s names; missing names cut nothing."""
    cutting = {"top_p": sampling.get("top_p", 1.0) < 1, "top_k": sampling.get("top_k", 0) > 0}
    cutting |= {"min_p": sampling.get("min_p", 0.0) > 0, "temperature": sampling.get("temperature", 1.0) == 0}
    named = [f"{name} {sampling[name]:g}" for name, cuts in cutting.items() if cuts]
    if not named:
        return None
    return f"{' and '.join(named)} cuts unlikely tokens off, so that ratios of a trainer's logprobs to these are wrong"


class StrictOptions(BaseModel):
    """Refuse unknown names, values left empty by mistake, NaN and infinite numbers.

    unused: atroposlib's names without a meaning here, with its defaults. essential: the options of `--help`, at most 15
    with those of the inference server. inherited: atroposlib's names, accepted and not explained. for_python: defaults
    for a subclass to change in Python; no command line or file sets them.
    """

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True)

    unused: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    essential: ClassVar[Sequence[str]] = ()
    inherited: ClassVar[Sequence[str]] = ()
    for_python: ClassVar[Sequence[str]] = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return atroposlib's default of an unused option: its base classes read some."""
            return type(self).unused[name] if name in type(self).unused else super().__getattr__(name)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unused(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if useless := cls.useless_options(values):
            raise ValueError("; ".join(f"{name} {NO_EFFECT}" for name in useless))
        return {name: value for name, value in values.items() if name not in cls.unused}

    @classmethod
    def useless_options(cls, values: Mapping[str, Any]) -> list[str]:
        """Return the options without a meaning here, set to another value than atroposlib's."""
        given = {name: values[name] for name in cls.unused if name in values}
        return [name for name, value in given.items() if str(getattr(value, "value", value)) != str(cls.unused[name])]

    def changed_options(self, names: Iterable[str]) -> list[str]:
        """Return the options among these with another value than their default."""
        return [name for name in names if getattr(self, name) != type(self).model_fields[name].default]

    @field_validator("*", mode="before")
    @classmethod
    def _check_not_empty(cls, value: Any, info: ValidationInfo) -> Any:
        default = cls.model_fields[info.field_name].default if info.field_name in cls.model_fields else None
        if isinstance(value, str) and not value.strip() and default != "":
            raise ValueError("it is empty; give a value, or leave it out")
        if isinstance(value, list | tuple) and any(isinstance(item, str) and not item.strip() for item in value):
            raise ValueError("one of its items is empty; leave that out")
        return value

    @field_validator("*")
    @classmethod
    def _check_usable(cls, value: Any) -> Any:
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise ValueError(f"it is too large; give at most {LARGEST}")
        if has_surrogates(value):
            raise ValueError("some of its bytes are not UTF-8")
        if isinstance(value, list):
            return [_expand_home(item) for item in value]
        return _expand_home(value)


class RayOptions(StrictOptions):
    """The nodes of worker processes on Ray, and their settings."""

    address: str = "auto"
    """Ray cluster, as HOST:PORT of its head; auto for this machine's cluster"""
    workers: Count = 1
    """Worker processes on each node"""
    rollouts: Count = 64
    """Most rollouts in one worker process at the same time"""
    resources: Annotated[dict[str, NotNegative], Field(min_length=1)] = {"CPU": 1.0}
    """A worker process's request to its node, as CPU=2,docker=1; nodes with less are not used"""

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if "://" in value:
            raise ValueError("no such protocol is used; start this on a machine of the cluster, and give HOST:PORT")
        return value


class AgentEnvConfig(StrictOptions):
    """Options of an environment with agents and tools."""

    unused = UNUSED
    essential: ClassVar[Sequence[str]] = (
        *("agent", "group_size", "max_steps", "max_token_length", "temperature", "max_concurrent_rollouts"),
        *("total_steps", "run_dir", "eval_samples"),
    )
    model: ClassVar[Sequence[str]] = (
        *("tokenizer_name", "trust_remote_code", "chat_template_kwargs", "tool_format", "tool_role", "fold_system"),
        *("history", "compaction", "trains_summaries", "summary_weight"),
        *("system_prompt", "top_p", "top_k", "min_p", "max_reply_tokens", "rollout_timeout_s", "request_timeout_s"),
        *("reward", "teacher", "teacher_model", "teacher_key", "teacher_top_k", "teacher_weight"),
    )
    """Options explained together by `--help-all`, beside those of the inference server."""
    for_training: ClassVar[Sequence[str]] = ()
    """Options that select tasks for training, not for evaluations."""
    inherited: ClassVar[Sequence[str]] = (
        *("max_num_workers", "use_wandb", "wandb_name", "inference_weight", "ensure_scores_are_not_same"),
        *("data_path_to_save_groups", "data_dir_to_save_evals", "include_messages", "max_batches_offpolicy"),
    )
    for_python: ClassVar[Sequence[str]] = ("task_failures", "failure_rate", "overtime_s", "outbox_mb")
    needing: ClassVar[Mapping[str, Sequence[str]]] = {
        "teacher": ("teacher_model", "teacher_key", "teacher_top_k", "teacher_weight"),
        "otlp_url": ("otlp_content",),
    }
    """Options that mean nothing without another one."""
    needs_tools: ClassVar[bool] = True
    """Whether every rollout is lost with a hosted model that doesn't see its tools."""
    _tokenizer: Any = PrivateAttr(default=None)
    _tasks: Any = PrivateAttr(default=None)

    group_size: Annotated[int, Field(ge=1, le=MOST_MEMBERS)] = 8
    """Rollouts of one task, scored together"""
    estimator: Literal["group-std", "group-mean", "leave-one-out", "none"] = "group-std"
    """Advantage of a rollout: its reward minus the group's mean (group-std also divides by the standard deviation), or
    minus the mean of the others; none is 0, to learn from a teacher or from turns alone"""
    length_penalty: Share = 0.0
    """Share of a positive reward that the longest rollouts of a group lose in their advantage"""
    max_num_workers: Count = 16
    """Most groups in progress"""
    max_concurrent_rollouts: Count = 64
    """Most rollouts (and so sandboxes) at the same time; below it, their number follows the inference servers' load"""
    max_token_length: Annotated[int, Field(ge=64)] = 8192
    """Token budget of a rollout, prompt and replies together"""
    max_reply_tokens: Count = 1024
    """Token budget of one reply"""
    max_steps: Count = 20
    """Turns in one rollout"""
    rollout_timeout_s: Positive = 900.0
    """Seconds for the commands and replies of a rollout, without waiting for busy servers; then its work is graded"""
    request_timeout_s: Positive = 600.0
    """Longest time of one request to the inference server in seconds"""
    temperature: NotNegative = 1.0
    """Sampling temperature in training and process"""
    top_p: PositiveShare = 1.0
    """Nucleus sampling threshold; below 1 only for evaluate and process"""
    top_k: Natural = 0
    """Likeliest tokens to sample from, 0 for all; only for evaluate and process"""
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Likelihood of a token, relative to the likeliest, below which it is not sampled; only for evaluate and
    process"""
    workers: Literal["process", "ray"] = "process"
    """Run rollouts in this process, or in worker processes of a Ray cluster (docs/ray.md)"""
    ray: RayOptions = RayOptions()
    """The Ray cluster"""
    tool_format: str = "auto"
    """Format of tool calls: auto takes the chat template's, or text if no format can read that; template ends the run
    instead; or a name of docs/formats.md, or package.module:Class"""
    history: Literal["template", "sampled"] = "template"
    """Earlier turns in the prompt: as the chat template writes them, or as sampled, with their thinking"""
    compaction: Literal["none", "cut", "summary", "notes"] = "none"
    """When little room is left, our agent cuts old results, continues from the model's summary, or begins again with
    the model's notes in a file (docs/compaction.md)"""
    trains_summaries: bool = True
    """Train the tokens of summaries, also of other people's agents"""
    summary_weight: NotNegative = 1.0
    """Factor on a rollout's advantage in the tokens of its summaries"""
    agent: str = "atropos"
    """The agent: atropos is ours; package.module:Class is your own subclass of AtroposAgent; envs.swe also takes codex,
    claude-code and the other names of docs/agents.md, or a file; codex:1,pi:2 draws one for each group, by weight"""
    reward: str = ""
    """Reward in training: package.module:function of (task, outcome), such as envs.rewards:fraction; empty for the
    environment's own"""
    teacher: Annotated[str, check_if_given(web_address)] = ""
    """Address of an inference server (vLLM's protocol) with another model of the same tokenizer; it scores the sampled
    tokens for the trainer (docs/teachers.md); empty for none"""
    teacher_model: str = "default"
    """The teacher's name there; default for its only model"""
    teacher_key: str = ""
    """Name of the environment variable with the teacher's key"""
    teacher_top_k: Annotated[int, Field(ge=0, le=20)] = 0
    """The teacher's likeliest tokens kept in rows beside the sampled one"""
    teacher_weight: NotNegative = 0.0
    """Factor on the reverse KL to the teacher in each token's advantage; 0 adds only the teacher's logprobs to rows"""
    tool_role: Literal["auto", "user", "tool"] = "auto"
    """Chat role of tool results: auto lets a chat template with support write tools, calls and results; user and tool
    make them plain text"""
    chat_template_kwargs: dict[str, Any] = {}
    """Variables of the chat template, such as enable_thinking=false"""
    fold_system: bool = False
    """Put the system prompt into the first user message, for chat templates that move it along"""
    system_prompt: str | None = None
    """Text at the beginning of the system prompt, in place of ours"""
    attempts: Count = 3
    """Attempts at a rollout with infrastructure failures, before its group goes to the end of the queue"""
    task_failures: Count = 3
    """Times that a task's group may be put back before the task is quarantined"""
    failure_rate: PositiveShare = 0.5
    """Share of infrastructure failures above which fewer rollouts are started"""
    overtime_s: Positive = 3600.0
    """Seconds beyond its own time and its verifier's, after which a rollout counts as hung"""
    equal_rewards: Literal["drop", "send", "resample", "top_up"] = "drop"
    """A group with equal rewards is dropped, sent, made again up to twice, or topped up with more rollouts, up to three
    times group_size, until rewards differ"""
    max_stale_steps: Natural = 16
    """Trainer steps after which an undelivered group is not sent any more"""
    outbox_mb: Count = 2048
    """Size of undelivered groups on disk; above it no new rollouts are started"""
    shutdown_s: NotNegative = 3.0
    """Seconds for running rollouts to finish after SIGTERM or Ctrl-C"""
    run_dir: Path | None = None
    """Directory of the run; an earlier run's directory continues it. By default a new one under runs/"""
    allow_change: list[Condition] = []
    """Conditions that may differ from the run's earlier starts, such as model,temperature; any other difference is
    refused"""
    seed: int = 0
    """Seed of the order of tasks"""
    tokenizer_name: str = ""
    """Tokenizer (a folder or a hub name); empty for the one named by the inference server"""
    trust_remote_code: bool = False
    """Run a tokenizer's own Python code in this process, as Kimi's needs"""
    track: list[Literal["wandb", "trackio", "tensorboard"]] = []
    """Trackers for figures of training and evaluations: wandb, trackio, tensorboard"""
    use_wandb: bool = False
    """atroposlib's name for track wandb"""
    wandb_name: str | None = None
    """Name of the run for trackers and the trainer API"""
    otlp_url: Annotated[str, check_if_given(web_address)] = ""
    """Address of an OpenTelemetry receiver of spans (OTLP over HTTP); empty for none"""
    otlp_content: bool = False
    """Put messages and tools' answers into spans"""
    live: Annotated[str, check_if_given(loopback)] = ""
    """HOST:PORT of this machine for the page of the run, such as 127.0.0.1:8900; empty for none"""
    prometheus: Annotated[str, check_if_given(host_port)] = ""
    """HOST:PORT for Prometheus' /metrics, such as 127.0.0.1:9464; empty for none"""
    rollout_server_url: Annotated[str, AfterValidator(web_address)] = "http://localhost:8000"
    """Address of the trainer API"""
    total_steps: Annotated[int, AfterValidator(_check_not_zero), Field(ge=-1)] = 1000
    """serve: the trainer's last step, -1 for the one that it names; process: groups to make"""
    inference_weight: Positive = 1.0
    """Share of the batches, beside other environments at the same trainer API"""
    ensure_scores_are_not_same: bool = True
    """atroposlib's name for equal_rewards: false sends groups with equal rewards"""
    data_path_to_save_groups: str | None = None
    """File of groups; by default process writes groups.jsonl in run_dir, serve none"""
    data_dir_to_save_evals: str | None = None
    """Directory for atroposlib's own file of an evaluation"""
    include_messages: bool = False
    """Send the chat messages to the trainer as well"""
    max_batches_offpolicy: Count = 3
    """Batches in the trainer's queue that make new groups wait"""
    steps_per_eval: Natural = 0
    """Trainer steps between evaluations; 0 for none"""
    eval_samples: Count = 1
    """Rollouts of each task in an evaluation, by each agent"""
    eval_temperature: NotNegative = 0.0
    """Sampling temperature in evaluations"""
    eval_top_p: PositiveShare | None = None
    """top_p of evaluations; by default that of training"""
    eval_top_k: Natural | None = None
    """top_k of evaluations; by default that of training"""
    eval_min_p: Annotated[float, Field(ge=0, lt=1)] | None = None
    """min_p of evaluations; by default that of training"""
    eval_ks: Annotated[list[Count], Field(min_length=1)] = [1]
    """The k of each pass@k to report; each at most eval_samples"""
    eval_lost: Share = 0.1
    """Share of an evaluation's samples that infrastructure failures may cost; above it evaluate ends with status 1"""
    eval_tokens: Natural = 0
    """Tokens in the prompts and replies of finished samples after which an evaluation ends (docs/hosted.md); 0 for no
    limit"""

    @model_validator(mode="after")
    def _check_consistent(self) -> AgentEnvConfig:
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
        if self.teacher_weight and self.temperature != 1:
            problems.append(
                "teacher_weight compares logprobs, and a teacher's are of temperature 1; set temperature to 1, or "
                "leave teacher_weight out"
            )
        if self.workers != "ray" and self.ray != RayOptions():
            problems.append("ray has no effect without workers ray; set that too, or leave ray out")
        for needed, names in self.needing.items():
            if not getattr(self, needed):
                useless = self.changed_options(names)
                problems += [
                    f"{name} has no effect without {needed}; set that too, or leave {name} out" for name in useless
                ]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def agent_config(self, *, max_total_tokens: int, evaluating: bool = False, **more: Any) -> AgentConfig:
        """Return the agent's part of these options; `more` are fields of AgentConfig with other values."""
        own = AgentConfig(
            **self.sampling(evaluating=evaluating),
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

    def sampling(self, *, evaluating: bool = False) -> dict[str, Any]:
        """Return the options of the sampling distribution of replies, by `AgentConfig`'s names."""
        usual = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k, "min_p": self.min_p}
        own = {name: getattr(self, f"eval_{name}") for name in usual} if evaluating else {}
        return usual | {name: value for name, value in own.items() if value is not None}

    def check_groups(self) -> None:
        """Raise ValueError if no group of the run's own order could reach a trainer."""
        if self.group_size == 1 and not self.teacher_weight and self.equal_rewards in ("drop", "resample"):
            raise ValueError(
                "--env.group_size 1: a rollout's advantage is its distance from the others of its group, so each would "
                "be 0 and no group would reach the trainer; give 2 or more (or --env.teacher_weight, or "
                "--env.equal_rewards send, if your trainer has a baseline of its own)"
            )

    def check_ratios(self) -> None:
        """Raise ValueError if trainers can't make importance ratios of the samples."""
        if (why := describe_cut_off(self.sampling())) is not None:
            raise ValueError(
                f"{why}; leave it out, and set --env.eval_NAME for evaluations (evaluate and process take it)"
            )

    @property
    def trackers(self) -> list[str]:
        """Return the trackers of figures, by name."""
        return list(dict.fromkeys([*self.track, *(["wandb"] if self.use_wandb else [])]))

    def with_tokenizer(self, name: str, tokenizer: Any) -> Self:
        """Return a copy of the options with a tokenizer by its name, which the environment need not read again."""
        own = self.model_copy(update={"tokenizer_name": name})
        own._tokenizer = tokenizer
        return own

    def take_tokenizer(self) -> Any:
        """Return the tokenizer that the options were given, once; None if they have its name alone."""
        given, self._tokenizer = self._tokenizer, None
        return given

    def keep_tasks(self, tasks: Any) -> None:
        """Keep what a start's check loaded for the run, which has a copy of these options."""
        self._tasks = self._task_options(), tasks

    def take_tasks(self) -> Any:
        """Return the tasks that were kept, once; None if there are none, or if an option has changed."""
        kept, self._tasks = self._tasks, None
        return kept[1] if kept is not None and kept[0] == self._task_options() else None

    def _task_options(self) -> dict[str, Any]:
        """Return the options by which tasks are loaded: all but the tokenizer, which a run is given after its check."""
        return self.model_dump(exclude={"tokenizer_name"})

    def chat_template(self, tokenizer: Any) -> ChatTemplate:
        """Return the tokenizer's chat template as the options want it. Raises ValueError when it can't be used."""
        made: ChatTemplate = _TEMPLATE()(tokenizer, fold_system=self.fold_system, **self.chat_template_kwargs)
        return made
