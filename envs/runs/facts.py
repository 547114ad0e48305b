"""Take from a saved rollout the facts for the index: the figures of a line in a table, and the text for searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_agent.types import IGNORED
from envs.records.atif import KEY
from envs.records.read import read_verdict_reward
from envs.types import RESOURCES, SIGN

MOST_TEXT = 400_000
"""Searched characters of each kind of text; more are cut off."""
KINDS = ("tag", "tool", "sign", "trouble", "agent", "resource")
"""Kinds of labels, beside their names."""
_LARGEST = 2**53
"""Largest figure; beyond it SQLite is not exact."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A rollout in figures. Times are in seconds.

    reward: its worth in training; judged: the verifier's own. surprise: sum of -logprob over the sampled tokens.
    policy: the step of its oldest weights; None if the inference server does not report them.
    labels: (kind, name) of tags, called tools, signs of cheating, troubles, the agent, and resources as name=version.
    """

    id: str
    task: str
    band: str
    grp: int | None
    member: int | None
    step: int
    evaluating: bool
    reward: float
    judged: float
    solved: bool
    stop: str
    turns: int
    tokens: int
    sampled: int
    surprise: float
    seconds: float
    open_s: float
    engine_s: float
    tools_s: float
    verifier_s: float
    tool_errors: int
    malformed: int
    policy: int | None
    rows: int
    explanation: str
    labels: Sequence[tuple[str, str]]
    instruction: str
    conversation: str
    output: str

    def __post_init__(self) -> None:
        """Refuse values without a place in the index. Raises ValueError."""
        for number in (self.grp, self.member):
            if not isinstance(number, int | None):
                raise ValueError(f"{number!r} is no number of a group or a member")
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not abs(value) < _LARGEST:
                raise ValueError(f"{name} is too large, or no number")


def facts_of(document: Mapping[str, Any]) -> Facts:
    """Take the facts out of an ATIF document of ours. Raises KeyError, TypeError or ValueError for a damaged one.

    `envs.records.read` checks every token; this does not, because a rollout is shown only after it is opened."""
    ours = document["extra"][KEY]
    result, verdict = ours["result"], ours["verdict"]
    seat = ours.get("seat") or ours.get("metadata") or {}
    counts = result.get("counts") or result.get("metadata") or {}
    times = {name: float(value) for name, value in ours["timings_s"].items()}
    steps = [step for step in document["steps"] if KEY in step.get("extra", {})]
    judged = read_verdict_reward(ours)
    sampled, surprise = _sampled(ours["segments"])
    versions = [row.get("policy_version") for row in ours["segments"]]
    return Facts(
        id=str(ours["id"]),
        task=str(ours["task"]["id"]),
        band=str(ours["task"]["band"] or ", ".join(ours["task"]["tags"])),
        grp=seat.get("group"),
        member=seat.get("member"),
        step=int(seat.get("step") or 0),
        evaluating=bool(seat.get("evaluating")),
        reward=float((ours.get("reward") or {}).get("value", verdict["reward"])),
        judged=judged,
        solved=judged >= 1.0,
        stop=str(result["stop_reason"] or "error"),
        turns=len(steps),
        tokens=sum(len(row["tokens"]) for row in ours["segments"]),
        sampled=sampled,
        surprise=surprise,
        seconds=times.get("total", sum(times.values())),
        open_s=times.get("open", 0.0) + times.get("sandbox", 0.0),
        engine_s=sum(float(step["extra"][KEY]["engine_s"]) for step in steps),
        tools_s=sum(float(step["extra"][KEY]["tools_s"]) for step in steps),
        verifier_s=times.get("verifier", 0.0),
        tool_errors=int(counts.get("tool_errors", 0)),
        malformed=int(counts.get("malformed_calls", 0)),
        policy=min((int(version) for version in versions if version is not None), default=None),
        rows=len(ours["segments"]),
        explanation=str(verdict["explanation"])[:400],
        labels=sorted({*_labels(ours, steps), ("agent", _agent(document, ours))}),
        instruction=_cut("\n".join([_instruction(result["messages"]), *_user_messages(document["steps"])])),
        conversation=_cut("\n".join(map(reply_text, steps))),
        output=_cut("\n".join([*_tool_outputs(steps), str(verdict["explanation"]), *_other_texts(ours)])),
    )


def _sampled(rows: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """Return how many tokens the rows train, and the sum of their -logprob."""
    count, surprise = 0, 0.0
    for row in rows:
        own = [logprob for mask, logprob in zip(row["masked_tokens"], row["logprobs"], strict=True) if mask != IGNORED]
        count += len(own)
        surprise -= sum(own)
    return count, surprise


def _agent(document: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Return the agent's name: as a run of several names it, else its own."""
    return str((ours.get("seat") or {}).get("agent") or document["agent"]["name"])


def _labels(ours: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    yield from (("tag", str(tag)) for tag in ours["task"]["tags"])
    yield from (("tool", str(call["function_name"])) for step in steps for call in step.get("tool_calls", ()))
    metrics = ours["verdict"]["metrics"]
    yield from (("sign", name.removeprefix(SIGN)) for name in metrics if name.startswith(SIGN))
    result = ours["result"]
    counts = result.get("counts") or result.get("metadata") or {}
    for name, about in ((result.get("metadata") or {}).get(RESOURCES) or {}).items():
        yield "resource", f"{name}={about['version']}"
    troubles = {
        "tool error": counts.get("tool_errors"),
        "malformed call": counts.get("malformed_calls"),
        "refused tokens": counts.get("refused_tokens"),
        "error": result.get("error"),
        "drift": result.get("drift"),
        "verifier timed out": metrics.get("verifier_timed_out"),
    }
    yield from (("trouble", name) for name, there in troubles.items() if there)


def _instruction(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(_text(message.get("content")) for message in messages[:3] if message["role"] == "user")


def _user_messages(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the user's messages after the first reply, also those that an agent's own code adds."""
    first = next((place for place, step in enumerate(steps) if KEY in step.get("extra", {})), len(steps))
    return [_text(step["message"]) for step in steps[first:] if step["source"] == "user"]


def reply_text(step: Mapping[str, Any]) -> str:
    """Return the text of a turn's reply: as sampled, or, with tool calls, as they were parsed, because in a call's JSON
    words are glued to escapes."""
    calls = step.get("tool_calls")
    if not calls:
        return _text(step["message"])
    arguments = [_text(value) for call in calls for value in dict(call["arguments"]).values()]
    names = [_text(call["function_name"]) for call in calls]
    parts = [_text(step.get("reasoning_content")), _text(step["extra"][KEY].get("content")), *names, *arguments]
    return "\n".join(part for part in parts if part)


def _tool_outputs(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the answers of tools."""
    for step in steps:
        for item in step.get("observation", {}).get("results", ()):
            yield _text(item["content"])


def _other_texts(ours: Mapping[str, Any]) -> Iterator[str]:
    """Yield the other texts: the patch, and the verifier's output, if they are saved."""
    for place in (ours, ours["result"], ours["verdict"]):
        for name in ("patch", "output"):
            if isinstance(place.get(name), str):
                yield place[name]


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _cut(text: str) -> str:
    return text[:MOST_TEXT]
