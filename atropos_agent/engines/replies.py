"""Whether an inference server's reply is sound: the one place of this decision, before the reply is used."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

from atropos_agent.engines.errors import shown
from atropos_agent.tokens.chat import ended_by, read_chat
from atropos_agent.tokens.conversation import Completion
from atropos_agent.tokens.experts import Experts, read_experts
from atropos_agent.tokens.record import first_difference
from atropos_agent.tokens.template import End
from atropos_agent.types import EngineError, TokenMismatch, count_of

ENDED = frozenset({"stop", "length", "eos", "eos_token", "stop_sequence", "repetition", "tool_calls", "function_call"})
"""Finish reasons of replies that are whole, or as long as they were allowed to be."""

UnknownId = Callable[[Sequence[int]], int | None]
"""Returns the first id outside of the vocabulary; None if it holds all (`ChatTemplate.unknown_id`)."""


EndOf = Callable[[Sequence[int], Sequence[str]], End]
"""Returns the end of a reply. The second argument is the strings to stop at (`ChatTemplate.end_of`)."""


class Defect(enum.StrEnum):
    """The fault of a reply."""

    ABORTED = "aborted"
    """It was cut off by the server, at a weight sync or a shutdown for example, or does not say why it ended."""
    FAILED = "failed"
    """It ended with an error, or for a reason that is none of a model's."""
    FILTERED = "filtered"
    """A content filter changed it."""
    MISSING = "missing"
    """The answer holds no reply."""
    SEVERAL = "several"
    """The answer holds more than one."""
    LONGER = "longer"
    """It is longer than requested."""
    EMPTY = "empty"
    """It holds no token, not even the end of the turn."""
    UNKNOWN_IDS = "unknown ids"
    """It holds something that is no token of the model's vocabulary."""


class UnsoundReply(EngineError):
    """An unusable reply: the inference server's failure, whatever the model did.

    passing: another try may succeed, because the server was interrupted.
    """

    def __init__(self, defect: Defect, message: str, *, lost_tokens: int = 0) -> None:
        super().__init__(message)
        self.defect = defect
        self.passing = defect in (Defect.ABORTED, Defect.FAILED)
        self.lost_tokens = lost_tokens


def check_answer(
    answer: Any,
    prompt: list[int],
    unknown_id: UnknownId | None = None,
    *,
    label: str = "the inference server",
    most: int | None = None,
) -> Completion:
    """Return the one reply in an answer to `prompt`, of the shape that `tokens_and_logprobs_completion` returns.

    unknown_id: knows the model's vocabulary; None leaves it out. label: the server's name in messages. most: the limit
    of tokens in the request.
    Raises UnsoundReply when the inference server failed, TokenMismatch when the answer contradicts its request. Both
    tell the number of lost sampled tokens.
    """
    seen, replies, logprobs, reasons = answer
    lost = sum(len(ids) for ids in replies)
    if not replies:
        raise UnsoundReply(Defect.MISSING, f"{label} returned no reply")
    if len(replies) > 1:
        what = f"{label} returned {len(replies)} replies instead of one"
        raise UnsoundReply(Defect.SEVERAL, what, lost_tokens=lost)
    check_ended(reasons[0], lost_tokens=lost)
    ids, given = replies[0], logprobs[0]
    if most is not None and len(ids) > most:
        what = f"{label} returned {len(ids)} tokens where {most} were asked for"
        raise UnsoundReply(Defect.LONGER, what, lost_tokens=lost)
    if not ids:
        raise UnsoundReply(Defect.EMPTY, f"{label} returned a reply without a token")
    strange: list[Any] = [] if set(map(type, ids)) == {int} else [i for i in ids if type(i) is not int]
    if not strange and unknown_id is not None and (unknown := unknown_id(ids)) is not None:
        strange = [unknown]
    if strange:
        what = f"{label} returned the id {shown(strange[0])}, which is not in the tokenizer's vocabulary"
        raise UnsoundReply(Defect.UNKNOWN_IDS, f"{what}; does it serve another model now?", lost_tokens=lost)
    if (seen if isinstance(seen, list) else list(seen)) != prompt:
        raise TokenMismatch(
            f"{label} was given another prompt than was sent, so it encodes prompts again: "
            f"{first_difference(list(seen), prompt)}",
            lost_tokens=lost,
        )
    if len(ids) != len(given):
        what = f"{label} returned {len(ids)} ids but {len(given)} logprobs"
        raise TokenMismatch(what, lost_tokens=lost)
    if not _are_logprobs(given):
        place = next(place for place, one in enumerate(given) if not _are_logprobs([one]))
        what = f"{label} returned {shown(given[place])} as the logprob of token {place} of {len(ids)}"
        raise TokenMismatch(f"{what}; one is finite and not above 0", lost_tokens=lost)
    (version,) = getattr(answer, "versions", [None])
    experts = _experts(getattr(answer, "experts", [None]), len(prompt) + len(ids), label, lost)
    return Completion(ids, [float(p) for p in given], _name(reasons[0]), version=version, experts=experts)


def check_chat_answer(response: Any) -> Completion:
    """Return the one reply in an OpenAI ChatCompletion, as text without ids. Raises UnsoundReply."""
    lost = count_of(getattr(getattr(response, "usage", None), "completion_tokens", None))
    if not response.choices:
        raise UnsoundReply(Defect.MISSING, "the inference server returned no reply")
    if len(response.choices) > 1:
        what = f"the inference server returned {len(response.choices)} replies instead of one"
        raise UnsoundReply(Defect.SEVERAL, what, lost_tokens=lost)
    (choice,) = response.choices
    refused = getattr(choice.message, "refusal", None)
    check_ended("content_filter" if refused else ended_by(choice), lost_tokens=lost)
    completion = read_chat(response)
    # The tokens of a silent end and of hidden thoughts are the model's.
    if not (completion.text or lost or completion.finish_reason == "length"):
        raise UnsoundReply(Defect.EMPTY, "the inference server returned a reply without text", lost_tokens=lost)
    return completion


def check_ended(finish_reason: Any, *, lost_tokens: int = 0) -> None:
    """Check that a reply ended as a model's replies do. Raises UnsoundReply."""
    reason = _name(finish_reason)
    if reason in ENDED:
        return
    if reason == "content_filter":
        defect, what = Defect.FILTERED, "the inference server filtered the reply"
    elif reason in ("abort", ""):
        defect, what = Defect.ABORTED, "the inference server aborted the request"
    else:
        defect, what = Defect.FAILED, f"the inference server's reply ended with {reason!r}"
    raise UnsoundReply(defect, what, lost_tokens=lost_tokens)


def _experts(payload: Sequence[Any], tokens: int, label: str, lost: int) -> Experts | None:
    """Return the experts of prompt and reply, of so many tokens; None if the server does not say."""
    if not isinstance(payload[0], str):
        return None
    try:
        experts = read_experts(payload[0])
    except ValueError as error:
        raise TokenMismatch(f"{label}: {error}", lost_tokens=lost) from error
    if len(experts) < tokens - 1:
        what = f"{label} returned routed experts of {len(experts)} tokens for a sequence of {tokens}"
        raise TokenMismatch(what, lost_tokens=lost)
    return experts


def _name(reason: Any) -> str:
    """Return a finish reason's name; "" without one."""
    return str((reason.get("type") if isinstance(reason, dict) else reason) or "")[:100]


def _are_logprobs(values: Sequence[Any]) -> bool:
    try:
        # JSON's false would count as 0.
        return bool not in set(map(type, values)) and all(map(math.isfinite, values)) and max(values, default=0.0) <= 0
    except (TypeError, OverflowError):
        return False
