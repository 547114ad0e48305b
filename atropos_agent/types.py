"""The nouns of an agent's run: its configuration, its steps, its token rows and its result."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import compress
from operator import add
from typing import Any

from tools.base import ToolCall, ToolResult

Message = dict[str, Any]
"""A chat message in OpenAI's shape: `role`, `content` (always text) and, if the chat template takes them as such,
`tool_calls`, thinking, `tool_call_id` and `name`."""

THINK, THINK_END = "<think>", "</think>"
"""The tags around a reply's thinking. Chat templates know them, with every tool format."""

IGNORED = -100
"""The value in `masked_tokens` of a token not trained."""

NO_LOGPROB = 1.0
"""The value in `logprobs` of a token not sampled by the inference server (a logprob is never > 0)."""


class StopReason(enum.StrEnum):
    """Why a rollout ended. All of them are graded; an infrastructure failure is an exception instead."""

    ANSWERED = "answered"
    """A reply without a tool call: the final answer."""
    SUBMITTED = "submitted"
    """A tool ended the rollout."""
    MAX_STEPS = "max_steps"
    MAX_TOKENS = "max_tokens"
    """Prompt and replies together reached the token budget."""
    TIME = "time"
    BROKE_OFF = "broke_off"
    """The agent's program ended in the middle of its work: it crashed, or could not go on from a reply."""


class Branch(enum.StrEnum):
    """The kind of a reply in its rollout. A rollout may have several conversations."""

    MAIN = "main"
    """In the agent's own conversation, also after it was compacted or edited and begun again."""
    FORK = "fork"
    """In a conversation forked from another by an agent of ours."""
    SUB_AGENT = "sub-agent"
    """In another conversation with tools."""
    SUMMARY = "summary"
    """Asked without tools, in a conversation with replies: a compaction, for example."""
    RETRY = "retry"
    """The agent had the reply, sent the same request again, and went on from the other reply."""
    SIDE = "side call"
    """Asked without tools and without any reply before: a title, a topic check."""
    UNTAKEN = "untaken"
    """The agent went away before it had the whole reply, and never requested it again."""


FORCIBLE = ("tool_choice", "response_format", "text.format", "output_format", "responseMimeType")
"""Fields of requests by which agents want parts of a reply forced, in any of the protocols."""


_CHOICES: Mapping[str, Sequence[str]] = {
    "tool_role": ("user", "tool"),
    "history": ("template", "sampled"),
    "compaction": ("none", "cut", "summary", "notes"),
}


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """How an agent works.

    temperature, top_p, top_k, min_p: of the sampling distribution; top_k 0 and min_p 0 cut nothing off it.
    max_tokens: tokens of one reply; None leaves it to the inference server, which may fill all the room there is.
    max_steps: turns in one rollout, of all its conversations.
    max_total_tokens: prompt and replies together; None takes no limit but the inference server's own.
    max_seconds: time of a rollout, commands and sampling at a fair speed (see `docs/faults.md`); None for no limit.
    system_prompt: the text before the tools' description; None for the default.
    tool_delay_s: pause after each tool call, in seconds.
    working_dir: named to the model; None leaves it out.
    request_timeout_s: of one request to the inference server.
    tool_role: the chat role of tool results: "user" works with every template,
        Hermes models were trained on "tool".
    history: "template" lets the chat template write earlier turns as it likes; "sampled" keeps a turn as it was sampled
        if the template would drop its thinking.
    stop: strings that end a reply, beside the inference server's own end-of-turn token.
    compaction: the policy when a conversation leaves little room (`atropos_agent.compaction`): "none", "cut",
        "summary" or "notes". trains_summaries: whether the model's summaries are trained.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = 2048
    max_steps: int = 30
    max_total_tokens: int | None = None
    max_seconds: float | None = None
    system_prompt: str | None = None
    tool_delay_s: float = 0.0
    working_dir: str | None = None
    request_timeout_s: float = 600.0
    tool_role: str = "user"
    stop: Sequence[str] = ()
    history: str = "template"
    compaction: str = "none"
    trains_summaries: bool = True

    def __post_init__(self) -> None:
        for name in ("max_steps", "request_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"AgentConfig.{name} must be positive, not {getattr(self, name)}")
        for name in ("max_tokens", "max_total_tokens", "max_seconds"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"AgentConfig.{name} must be positive or None, not {value}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"AgentConfig.{name} must be {' or '.join(known)}, not {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, taken apart by a tool format.

    thinking: the model's thinking; None without any.
    content: the rest, without calls.
    calls: the well-formed calls, in order.
    problems: the error of each malformed call, in order.
    orderly: thinking came first, then content, then calls and nothing else, as a chat template writes a turn. False
        if not so, or not known: then the reply stays text.
    """

    thinking: str | None
    content: str
    calls: Sequence[ToolCall]
    problems: Sequence[str]
    orderly: bool = False


@dataclass(frozen=True, slots=True)
class TeacherScores:
    """Hold a teacher's logprobs at the sampled tokens of a row, in order.

    logprobs: of the sampled tokens. ids, top: the teacher's likeliest tokens at the same places and their logprobs, the
    likeliest first; empty if they were not requested.
    """

    logprobs: Sequence[float]
    ids: Sequence[Sequence[int]] = ()
    top: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, slots=True)
class SequenceData:
    """One row of tokens, with everything given to and everything sampled by the inference server.

    tokens: token ids, length n.
    masked_tokens: per token the id if the inference server sampled it, else -100 (IGNORED).
    logprobs: per token the inference server's logprob if it sampled it, else 1.0 (NO_LOGPROB).
    full_text: `tokens` decoded, special tokens kept.
    segment: number of the row in its rollout, from 0; segments without sampled tokens have no row.
    turns: how many replies are in the row.
    policy_version: of the oldest weights with a part in a reply; None if the inference server
        does not say.
    thinking_kept: whether replies stand as they were sampled although the chat template would drop their thinking.
    branch: the kind of the row's conversation (`Branch`).
    experts: each token's experts, in a mixture-of-experts model: see `atropos_agent.tokens.experts`.
    teacher: the scores of another model; None without a teacher.

    Raises ValueError when lengths differ or a trained token's logprob is missing, positive or
    not finite.
    """

    full_text: str
    tokens: Sequence[int]
    masked_tokens: Sequence[int]
    logprobs: Sequence[float]
    segment: int = 0
    turns: int = 0
    policy_version: int | None = None
    thinking_kept: bool = False
    branch: str = "main"
    experts: str | None = field(default=None, repr=False)
    teacher: TeacherScores | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.masked_tokens) == len(self.logprobs):
            raise ValueError(
                f"a row needs as many masked tokens and logprobs as tokens, got {len(self.tokens)} tokens, "
                f"{len(self.masked_tokens)} masked tokens and {len(self.logprobs)} logprobs"
            )
        trained = [masked != IGNORED for masked in self.masked_tokens]
        chosen = list(compress(self.logprobs, trained))
        # Each of these looks at all places at once, which takes a third of the time.
        if (
            list(compress(self.tokens, trained)) == list(compress(self.masked_tokens, trained))
            and self.logprobs.count(NO_LOGPROB) == len(trained) - len(chosen)
            and all(-math.inf < logprob <= 0 for logprob in chosen)
        ):
            return
        self._describe_problem()

    def _describe_problem(self) -> None:
        """Raise ValueError for the first place with values forbidden in a row."""
        for place, (token, masked, logprob) in enumerate(
            zip(self.tokens, self.masked_tokens, self.logprobs, strict=True)
        ):
            if masked == IGNORED and logprob != NO_LOGPROB:
                raise ValueError(f"token {place} is not trained but has the logprob {logprob}")
            if masked not in (IGNORED, token):
                raise ValueError(f"token {place} is {token} but its mask says {masked}")
            if masked != IGNORED and not -math.inf < logprob <= 0:
                raise ValueError(f"token {place} is trained with the impossible logprob {logprob}")

    @property
    def trained(self) -> int:
        """Return how many tokens are trained."""
        return sum(token != IGNORED for token in self.masked_tokens)


@dataclass(frozen=True, slots=True)
class AgentStep:
    """One reply and the results of its calls.

    response: the reply as sampled, without the end-of-turn token.
    thinking: its `<think>` part; None when there was none.
    content: the rest of it, without calls.
    calls, results: in the order in which they ran.
    correction: the message to the model about malformed calls; None when there were none.
    prompt_tokens, completion_tokens: token counts of the request. The ids themselves are in the
        row of the segment: the reply is `tokens[start:start + completion_tokens]`.
    policy_version: of the oldest weights with a part in the reply; None if the inference server does not say.
    branch: the kind of the reply (`Branch`).
    said: messages of the user's, or of an agent of one's own, before the reply; none before the first one, which
        stand in the result's messages.
    """

    index: int
    response: str
    thinking: str | None = None
    calls: Sequence[ToolCall] = ()
    results: Sequence[ToolResult] = ()
    correction: str | None = None
    finish_reason: str = "stop"
    segment: int = 0
    start: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    engine_s: float = 0.0
    tools_s: float = 0.0
    content: str = ""
    policy_version: int | None = None
    branch: str = "main"
    said: Sequence[Message] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request to the inference server and its reply, as they went over the wire.

    extends: the prompt begins with all of an earlier prompt and its reply.
    given: the prompt's ids, without this beginning.
    ids, logprobs: the reply, of equal length.
    back: how many exchanges earlier the extended one stands; normally it is the one before.
    untrained: why the reply is in no row; "" if it is in one.
    """

    extends: bool
    given: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]
    back: int = 1
    untrained: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a run; two parts of a run are added.

    tool_calls: well-formed calls.
    malformed_calls: texts that could not be read as calls, and calls that named no tool or had wrong arguments.
    tool_errors: calls whose result is an error.
    refused_tokens: sampled tokens in no row, because the reply was aborted, or refused as unsound or as
        contradicting its request. They were paid for.
    abandoned_requests: requests given up before their answer came.
    unshown: contents returned by tools that no text can show, such as pictures; the model got words for them.
    """

    tool_calls: int = 0
    malformed_calls: int = 0
    tool_errors: int = 0
    refused_tokens: int = 0
    abandoned_requests: int = 0
    unshown: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, astuple(self), astuple(other)))


_MOST_TOKENS = 10**12
"""No endpoint has counted as many. Sums of larger ones may be more than a file takes."""


def count_of(value: Any) -> int:
    """Return a count of tokens as an endpoint reports it; 0 for what is none: no number, or one beyond all sense."""
    return int(value) if type(value) in (int, float) and 0 <= value < _MOST_TOKENS else 0


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of an agent's work.

    model: the inference server's name for it. tools: those shown to it, in OpenAI's function format. sampling: the
    settings of every request beside its prompt, and the budgets of the run, by `AgentConfig`'s names.
    """

    model: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentResult:
    """An agent's work, from its first message to its last.

    success: the rollout ended by the agent's own decision (an answer or a submission), not by a
        budget. It says nothing of the reward.
    segments: rows that hold every sampled token exactly once. One row normally; a new one starts
        where the chat template rewrites history.
    record: every request and its reply, for checking the rows (`record.problems`).
    carries_tokens: whether the inference server gave token ids; False if there can be no rows.
    drift: how the last prompt differs from the chat template's own text of the conversation (see
        `atropos_agent.tokens.drift`); None if it does not.
    metadata: anything else a caller wants to keep with the result.
    conditions: of its work.
    """

    success: bool
    final_response: str
    steps: Sequence[AgentStep]
    stop_reason: StopReason | None
    segments: Sequence[SequenceData]
    messages: Sequence[Message]
    error: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    record: Sequence[Exchange] = ()
    counts: Counts = Counts()
    carries_tokens: bool = True
    drift: str | None = None
    conditions: Conditions = Conditions()

    @property
    def sampled_tokens(self) -> int:
        """Return how many tokens the rows train."""
        return sum(segment.trained for segment in self.segments)

    @property
    def total_tokens(self) -> int:
        """Return how many tokens the rows hold, given and sampled."""
        return sum(len(segment.tokens) for segment in self.segments)

    @property
    def num_steps(self) -> int:
        """Return how many replies there were."""
        return len(self.steps)

    def to_messages(self) -> list[Message]:
        """Return the conversation as chat messages, in order."""
        return [dict(message) for message in self.messages]

    def to_scored_data(self, score: float) -> list[dict[str, Any]]:
        """Return one ScoredDataItem a segment, each with this rollout's score."""
        return [
            {
                "tokens": list(segment.tokens),
                "masks": list(segment.masked_tokens),
                "scores": score,
                "inference_logprobs": list(segment.logprobs),
                "messages": self.to_messages(),
            }
            for segment in self.segments
        ]


class AgentError(RuntimeError):
    """An infrastructure failure: no reward may be made of it.

    partial: the run so far. lost_tokens: tokens the inference server sampled in the failed answer.
    """

    def __init__(self, message: str, partial: AgentResult | None = None, *, lost_tokens: int = 0) -> None:
        super().__init__(message)
        self.partial = partial
        self.lost_tokens = lost_tokens


class EngineError(AgentError):
    """The inference server failed or did not answer. passing: the same request may succeed later."""

    passing = False


class Unanswered(AgentError):
    """No reply was sampled, because an agent's first requests were refused: this says nothing of the model."""

    permanent = True


class TokenMismatch(AgentError):
    """The server's answer contradicts its request; nothing of it can be trained on."""
