"""Bring an agent's history into a conversation's form: each reply one message, and the results of its calls behind it,
in the order of the calls.

Agents send results as they come in, and most chat templates show no ids: the model would take one call's result for
another's.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from atropos_agent.gateway.echo import arguments_of, same
from atropos_agent.gateway.requests import HistoryMessage
from atropos_agent.types import THINK, THINK_END

if TYPE_CHECKING:
    from atropos_agent.gateway.forest import Turn

MISSING = "[no result of this call was sent]"
FOREIGN = "[sent as the result of {!r}, which is no call of the reply before]"
_SHOWN = 60
_TAGS = re.compile(f"{THINK}|{THINK_END}")


def settled(
    messages: Sequence[HistoryMessage], retold: Callable[[HistoryMessage], Turn | None]
) -> list[HistoryMessage]:
    """Return a history in order. retold: finds the turn whose answer a message tells."""
    found: list[HistoryMessage] = []
    reply: HistoryMessage | None = None
    behind: list[HistoryMessage] = []
    for told in _joined(messages, retold):
        if told.role != "assistant":
            behind.append(told)
            continue
        found += _behind(reply, behind)
        found.append(told)
        reply, behind = told, []
    return found + _behind(reply, behind)


def _joined(
    messages: Sequence[HistoryMessage], retold: Callable[[HistoryMessage], Turn | None]
) -> list[HistoryMessage]:
    """Return messages with each reply's thinking in the reply, not in a message of its own."""
    found: list[HistoryMessage] = []
    for told in messages:
        before = found[-1] if found else None
        if before is not None and before.role == told.role == "assistant" and _is_thought(before, told, retold):
            handle = before.handle if told.handle is None else told.handle
            thinking = told.thinking or before.thinking or _TAGS.sub("", before.text)
            found[-1] = replace(told, thinking=thinking, handle=handle)
        else:
            found.append(told)
    return found


def _is_thought(told: HistoryMessage, reply: HistoryMessage, retold: Callable[[HistoryMessage], Turn | None]) -> bool:
    """Tell whether a message holds nothing but the thinking before the reply behind it."""
    if told.calls:
        return False
    if not told.text.strip():
        return bool(told.thinking)
    turn = retold(reply)
    thought = turn.sampled.answer.thinking if turn is not None and turn.sampled is not None else None
    return bool(thought) and same(_TAGS.sub("", told.text), thought or "")


def _behind(reply: HistoryMessage | None, messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """Return the messages behind a reply, the results first: one for each of its calls, then those of no call of it."""
    sent: dict[str, deque[HistoryMessage]] = {}
    for told in messages:
        if told.role == "tool":
            sent.setdefault(told.call_id, deque()).append(told)
    calls = () if reply is None else reply.calls
    results: list[HistoryMessage] = []
    of_one = Counter(call.id for call in calls)
    for call in calls:
        of_one[call.id] -= 1
        there = sent.get(call.id)
        if there:
            # The last of several calls with one id has all that is left.
            results.append(there.popleft() if of_one[call.id] else _one(sent.pop(call.id)))
        elif isinstance(arguments_of(call), dict):  # of one that can't be read there need be none
            results.append(HistoryMessage("tool", MISSING, call_id=call.id))
    foreign = [_named(told) for some in sent.values() for told in some]
    if results and foreign:
        results[-1] = _one([results[-1], *foreign])
        foreign = []
    return [*results, *foreign, *(told for told in messages if told.role != "tool")]


def _one(results: Sequence[HistoryMessage]) -> HistoryMessage:
    """Return several messages as one result, the first one's."""
    if len(results) == 1:
        return results[0]
    unshown = sum(told.unshown for told in results)
    return replace(results[0], text="\n\n".join(told.text for told in results), unshown=unshown)


def _named(told: HistoryMessage) -> HistoryMessage:
    """Return a result with words that say it belongs to none of the reply's calls."""
    said = FOREIGN.format(told.call_id[:_SHOWN])
    return told if told.text.startswith(said) else replace(told, text=f"{said}\n{told.text}")
