"""Replies of a rollout's conversations: each is taken in, and all of them become rows.

Conversations may share their beginning. A part trained in one row is context in the others, so each sampled token
is trained in exactly one row, or left out for a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from atropos_agent.fitted import FittedFormat
from atropos_agent.tokens.chat import ChatLog
from atropos_agent.tokens.conversation import Completion, Conversation
from atropos_agent.types import AgentResult, AgentStep, Branch, Exchange, Reply, SequenceData


@dataclass(eq=False, slots=True)
class HarvestedReply:
    """A reply taken in by a conversation.

    step: its segment is the conversation's own number. exchange: the reply's number in the record; -1 if there is
    none. branch: the kind of its conversation (`Branch`). untrained: why no row trains it; "" if one does.
    """

    step: AgentStep
    exchange: int
    branch: str
    untrained: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """A reply as it was read. opened: whether it began inside of thinking. called: whether its calls are the chat
    template's. step: its step before its calls are run."""

    text: str
    reply: Reply
    opened: bool
    called: bool
    step: AgentStep


def take_in(
    conversation: Conversation | ChatLog,
    fitted: FittedFormat,
    completion: Completion,
    *,
    number: int,
    first_id: int,
    engine_s: float,
) -> Read:
    """Take a reply into its conversation, and read it.

    number: the step's. first_id: of the reply's first call. engine_s: how long the reply took, in seconds."""
    segment, start, opened = len(conversation.segments) - 1, len(conversation.prompt), conversation.thinking_open
    text = conversation.add_reply(completion)
    reply = fitted.read(text, first_id=first_id, thinking_open=opened, message=completion.message)
    prompt_tokens, completion_tokens = completion.used or (start, len(completion.ids))
    called = fitted.message(reply)
    if called is not None:
        conversation.add_calls(*called)
    step = AgentStep(
        number,
        text,
        reply.thinking,
        reply.calls,
        finish_reason=completion.finish_reason,
        segment=segment,
        start=start,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        engine_s=engine_s,
        content=reply.content,
        policy_version=completion.version,
    )
    return Read(text, reply, opened, called is not None, step)


UNUSED_SUMMARY = "unused summary"
"""Why a summary is not trained: the agent could not go on from it, or did not."""
MASKED_SUMMARY = "masked summary"
"""The same: an option leaves summaries out (`AgentConfig.trains_summaries`)."""

Path = tuple[Conversation | ChatLog, Sequence[HarvestedReply]]
"""A conversation, and its replies from its beginning, also those sampled before it was forked from another."""


@dataclass(frozen=True, slots=True)
class Harvest:
    """The rows and steps of a rollout's conversations.

    steps: with the numbers of their rows. record: with untrained replies marked. untrained: tokens of these, by
    reason.
    """

    rows: Sequence[SequenceData]
    steps: Sequence[AgentStep]
    record: Sequence[Exchange]
    untrained: Mapping[str, int]


def harvest(paths: Sequence[Path], record: Sequence[Exchange]) -> Harvest:
    """Return the rows and steps of everything sampled. A reply is trained in the first path that holds it."""
    rows: list[SequenceData] = []
    places: dict[HarvestedReply, int] = {}
    for path in paths:
        _add_rows(path, rows, places)
    marked, untrained = list(record), Counter[str]()
    for taken in {one: None for _, replies in paths for one in replies}:
        if taken.untrained and taken.exchange >= 0:
            untrained[taken.untrained] += len(marked[taken.exchange].ids)
            marked[taken.exchange] = replace(marked[taken.exchange], untrained=taken.untrained)
    steps = [
        replace(one.step, segment=place, branch=one.branch)
        for one, place in _number_rows(paths, places, len(rows)).items()
    ]
    return Harvest(tuple(rows), tuple(sorted(steps, key=lambda step: step.index)), tuple(marked), dict(untrained))


def compaction_of(steps: Sequence[AgentStep], count: int, saved: int, version: str = "") -> dict[str, Any]:
    """Return what a result's metadata tell of its compactions; nothing without any.

    count: of compactions. saved: tokens, about. version: of the texts for the model, if they are ours."""
    found = _summaries(steps)
    if not (count or found["summaries"]):
        return {}
    texts = {"version": version} if version else {}
    return {"compaction": {**texts, "count": count, "tokens_saved": saved, **found}}


def metadata_of(results: Sequence[AgentResult], steps: Sequence[AgentStep]) -> dict[str, Any]:
    """Return the metadata of results that follow each other in one rollout: what became of their conversations is added
    up, of anything else the last result's stands. steps: of all results, with their new numbers."""
    found = {name: value for result in results for name, value in result.metadata.items()}
    for name in ("conversations", "gateway"):
        summaries = [result.metadata[name] for result in results if name in result.metadata]
        if summaries:
            found[name] = reduce(_add_values, summaries) | {"branches": dict(Counter(step.branch for step in steps))}
            if compaction := found[name].get("compaction"):
                found[name]["compaction"] = {**compaction, **_summaries(steps)}
    return found


def _add_values(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {name: _add_values(one.get(name), other.get(name)) for name in {**one, **other}}
    return one + other if isinstance(one, int) and isinstance(other, int) else one if other is None else other


def _summaries(steps: Sequence[AgentStep]) -> dict[str, list[int]]:
    return {"summaries": [step.index for step in steps if step.branch == Branch.SUMMARY]}


def _add_rows(path: Path, rows: list[SequenceData], places: dict[HarvestedReply, int]) -> None:
    """Add a conversation's rows; they train the replies not trained by rows before. places: the number of each
    reply's row."""
    conversation, replies = path
    chosen: dict[int, list[HarvestedReply]] = {}
    for one in replies:
        if not one.untrained and one not in places:
            chosen.setdefault(one.step.segment, []).append(one)
    spans = {
        segment: [(one.step.start, one.step.start + one.step.completion_tokens) for one in some]
        for segment, some in chosen.items()
    }
    for fields in conversation.cut(spans):
        some = chosen[fields["segment"]]
        versions = [one.step.policy_version for one in some if one.step.policy_version is not None]
        places |= dict.fromkeys(some, len(rows))
        fields |= {"segment": len(rows), "turns": len(some), "policy_version": min(versions, default=None)}
        rows.append(SequenceData(**fields, branch=some[0].branch))


def _number_rows(paths: Sequence[Path], places: Mapping[HarvestedReply, int], spare: int) -> dict[HarvestedReply, int]:
    """Return the number of each reply's row. A reply without a row gets an unused number, one for each segment of its
    conversation."""
    found = dict(places)
    numbers: dict[tuple[int, int], int] = {}
    for place, (_, replies) in enumerate(paths):
        for one in replies:
            if one not in found:
                found[one] = numbers.setdefault((place, one.step.segment), spare + len(numbers))
    return found
