"""Compare messages sent by an agent with ours, in a canonical form.

The echo of a reply only finds a place. Unintended changes by agents change nothing: white space at the ends, the order
of keys and how arguments are written, thinking that is not sent back, the order of tools.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atropos_agent.gateway.requests import Answer, HistoryCall, HistoryMessage, ReplyCall


def is_echo(message: HistoryMessage, answer: Answer) -> bool:
    """Tell whether a message is our answer as agents send it back."""
    if message.role != "assistant" or len(message.calls) > len(answer.calls):
        return False
    sound = [call for call in answer.calls if call.call is not None]
    if by_ids := [call.id for call in message.calls] == [call.id for call in answer.calls]:
        # What an agent makes of a broken call, or one of a tool that it has not, is its business: its id tells.
        known = zip(message.calls, answer.calls, strict=True)
        pairs = [(one, ours) for one, ours in known if ours.call is not None and ours.offered]
    elif len(message.calls) == len(sound):
        # Broken calls are text where the protocol can't carry them. Ids may be the agent's own.
        pairs = list(zip(message.calls, sound, strict=True))
    else:
        return False
    if any(one.name != ours.name or not _is_same_call(one, ours, by_ids) for one, ours in pairs):
        return False
    if by_ids and message.calls:
        return True  # whatever it makes of the words and the thinking beside them
    if not (
        message.thinking is None or message.handle == answer.number or same(message.thinking, answer.thinking or "")
    ):
        return False
    # An agent sends a broken call back in other words, some in the text.
    broken = len(sound) < len(answer.calls) and (message.handle == answer.number or bool(message.calls))
    return broken or same(message.text, answer.content if by_ids else answer.whole)


def pair_results(
    messages: Sequence[HistoryMessage], echo: HistoryMessage, answer: Answer
) -> Iterator[tuple[HistoryMessage, ReplyCall | None]]:
    """Yield the messages after an answer, each with the call whose result it is. echo: the answer as the agent sent it
    back before them, with ids that may be its own, and maybe without broken calls."""
    all_told = len(echo.calls) == len(answer.calls)
    ours = [call for call in answer.calls if all_told or call.call is not None]
    calls: dict[str, deque[ReplyCall]] = {}
    for told, call in zip(echo.calls, ours, strict=True):
        calls.setdefault(told.id, deque()).append(call)
    for message in messages:
        there = calls.get(message.call_id) if message.role == "tool" else None
        yield message, there.popleft() if there else None


def same_messages(messages: Sequence[HistoryMessage], ours: Sequence[HistoryMessage]) -> bool:
    """Tell whether two stretches of messages say the same."""
    return len(messages) == len(ours) and all(map(same_message, messages, ours))


def same_message(message: HistoryMessage, ours: HistoryMessage) -> bool:
    """Tell whether two messages say the same."""
    return (
        message.role == ours.role
        and message.call_id == ours.call_id
        and same(message.text, ours.text)
        and len(message.calls) == len(ours.calls)
        and all(
            a.id == b.id and a.name == b.name and (a.arguments == b.arguments or a.meant == b.meant)
            for a, b in zip(message.calls, ours.calls, strict=True)
        )
    )


def same(text: str, ours: str) -> bool:
    """Tell whether two texts are the same but for white space at their ends."""
    return text == ours or text.strip() == ours.strip()


def _is_same_call(call: HistoryCall, ours: ReplyCall, by_id: bool) -> bool:
    if call.arguments == ours.text:
        return True
    if ours.call is None:
        return False
    meant, sampled = call.meant, ours.call.arguments
    if by_id and isinstance(meant, dict):  # agents add arguments: defaults, or the tool's name
        meant = {key: one for key, one in meant.items() if key in sampled}
    return _is_same_value(meant, sampled)


def _is_same_value(value: Any, ours: Any) -> bool:
    """Tell whether a JSON value is ours as a client sends it back: JavaScript's numbers are doubles, and halves of
    surrogate pairs are lost on the way."""
    match value, ours:
        case Mapping(), Mapping():
            return value.keys() == ours.keys() and all(_is_same_value(value[key], ours[key]) for key in ours)
        case list(), list() | tuple():
            return len(value) == len(ours) and all(map(_is_same_value, value, ours))
        case str(), str():
            return value == ours or value.encode("utf-8", "replace") == ours.encode("utf-8", "replace")
        case (int() | float(), int() | float()) if not isinstance(value, bool):
            return _double(value) == _double(ours)
    return bool(value == ours)


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
