"""Triplets of prompt, response and reward, one a turn, from saved rollouts or from spans."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from atropos_agent.tracing import INPUT_MESSAGES, OPERATION, OUTPUT_MESSAGES, REWARD, TASK
from atropos_agent.types import AgentStep, Message
from envs.records.atif import TOLD
from envs.records.read import SavedRollout

_EDITS = frozenset({"edited", "rewritten"})
"""Changes of an agent's history after which earlier replies had other messages before them."""


def rollout_triplets(saved: SavedRollout) -> Iterator[dict[str, Any]]:
    """Yield a rollout's triplets: `prompt` as chat messages, `response` as text and the rollout's `reward`, with the
    ids of both and the response's logprobs if present. The messages are of one conversation: `prompt` is empty for a
    reply of another."""
    messages, steps = saved.result.messages, saved.result.steps
    rows = {row.segment: row for row in saved.result.segments}
    last = next((rows.get(step.segment) for step in reversed(steps) if step.branch in TOLD), None)
    edits = saved.result.metadata.get("gateway", {}).get("changes", {}).keys() & _EDITS
    for step, found in zip(steps, _reply_places(messages, steps), strict=True):
        row = rows.get(step.segment)
        edited = edits and row and last and row.tokens[: step.start] != last.tokens[: step.start]
        place = 0 if edited else found
        systems = [at for at in range(place) if messages[at]["role"] == "system"]
        end = step.start + step.completion_tokens
        yield {
            "rollout": saved.id,
            "task": saved.task_id,
            "turn": step.index,
            "prompt": list(messages[systems[-1] if systems else 0 : place]),
            "response": step.response,
            "reward": saved.reward.value,
            "prompt_ids": list(row.tokens[: step.start]) if row else [],
            "response_ids": list(row.tokens[step.start : end]) if row else [],
            "logprobs": list(row.logprobs[step.start : end]) if row else [],
        }


def _reply_places(messages: Sequence[Message], steps: Sequence[AgentStep]) -> Sequence[int]:
    """Return the place of each reply among the messages; 0 for one of another conversation than theirs."""
    replies = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    told = [number for number, step in enumerate(steps) if step.branch in TOLD]
    places, after = [0] * len(steps), len(messages)
    for number in reversed(told):  # replies given as examples, and those of a shorter history, come first
        there = [place for place in replies if place < after]
        if len(told) > len(replies):
            texts = (steps[number].response, steps[number].content)
            there = [place for place in there if messages[place]["content"] in texts]
        if there:
            places[number] = after = there[-1]
    return places


def span_triplets(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the triplets of spans in OTLP's JSON, a request a line, from a collector's file exporter.

    A triplet is an engine call with its messages (`--env.otlp_content`), in the trace of a rollout with a reward.
    Raises ValueError for any other line.
    """
    calls: list[tuple[str, Mapping[str, Any]]] = []
    rollouts: dict[str, Mapping[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            spans = list(_spans(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number} holds no spans in OTLP's JSON: {error!r}") from error
        for trace, attributes in spans:
            if REWARD in attributes:
                rollouts[trace] = attributes
            elif attributes.get(OPERATION) == "chat" and INPUT_MESSAGES in attributes and OUTPUT_MESSAGES in attributes:
                calls.append((trace, attributes))
    for trace, call in calls:
        if trace in rollouts:
            yield {
                "rollout": trace,
                "task": rollouts[trace].get(TASK),
                "prompt": json.loads(call[INPUT_MESSAGES]),
                "response": json.loads(call[OUTPUT_MESSAGES]),
                "reward": rollouts[trace][REWARD],
            }


def _spans(request: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the trace and the attributes of each span of a request."""
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                values = {item["key"]: next(iter(item["value"].values()), None) for item in span.get("attributes", ())}
                yield span["traceId"], values
