"""Bring an agent's history into a conversation's form: each reply one message, and the results of its calls after it,
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

from atropos_agent.gateway.echo import same
from atropos_agent.gateway.requests import HistoryMessage
from atropos_agent.types import THINK, THINK_END

if TYPE_CHECKING:
    from atropos_agent.gateway.forest import Turn

MISSING = "[no result of this call was sent]"
FOREIGN = "[sent as the result of {!r}, which is no call of the reply before]"
_SHOWN = 60
_TAGS = re.compile(f"{THINK}|{THINK_END}")


def order_history(
    messages: Sequence[HistoryMessage], find_turn: Callable[[HistoryMessage], Turn | None]
) -> list[HistoryMessage]:
    """Return a history in order. find_turn: finds the turn whose answer a message tells."""
    found: list[HistoryMessage] = []
    reply: HistoryMessage | None = None
    behind: list[HistoryMessage] = []
    for message in _merge_thinking(messages, find_turn):
        if message.role != "assistant":
            behind.append(message)
            continue
        found += _order_results(reply, behind)
        found.append(message)
        reply, behind = message, []
    return found + _order_results(reply, behind)


def _merge_thinking(
    messages: Sequence[HistoryMessage], find_turn: Callable[[HistoryMessage], Turn | None]
) -> list[HistoryMessage]:
    """Return messages with each reply's thinking in the reply, not in a message of its own."""
    found: list[HistoryMessage] = []
    for message in messages:
        before = found[-1] if found else None
        if (
            before is not None
            and before.role == message.role == "assistant"
            and _is_thought(before, message, find_turn)
        ):
            handle = before.handle if message.handle is None else message.handle
            thinking = message.thinking or before.thinking or _TAGS.sub("", before.text)
            found[-1] = replace(message, thinking=thinking, handle=handle)
        else:
            found.append(message)
    return found


def _is_thought(
    message: HistoryMessage, reply: HistoryMessage, find_turn: Callable[[HistoryMessage], Turn | None]
) -> bool:
    """Tell whether a message holds nothing but the thinking before the reply after it."""
    if message.calls:
        return False
    if not message.text.strip():
        return bool(message.thinking)
    turn = find_turn(reply)
    thought = turn.sampled.answer.thinking if turn is not None and turn.sampled is not None else None
    return bool(thought) and same(_TAGS.sub("", message.text), thought or "")


def _order_results(reply: HistoryMessage | None, messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """Return the messages after a reply, the results first: one for each of its calls, then those of no call of it."""
    sent: dict[str, deque[HistoryMessage]] = {}
    for message in messages:
        if message.role == "tool":
            sent.setdefault(message.call_id, deque()).append(message)
    calls = () if reply is None else reply.calls
    results: list[HistoryMessage] = []
    of_one = Counter(call.id for call in calls)
    for call in calls:
        of_one[call.id] -= 1
        there = sent.get(call.id)
        if there:
            # The last of several calls with one id has all that is left.
            results.append(there.popleft() if of_one[call.id] else _merge_results(sent.pop(call.id)))
        elif isinstance(call.meant, dict):  # of one that can't be read there need be none
            results.append(HistoryMessage("tool", MISSING, call_id=call.id))
    foreign = [_mark_foreign(message) for some in sent.values() for message in some]
    if results and foreign:
        results[-1] = _merge_results([results[-1], *foreign])
        foreign = []
    return [*results, *foreign, *(message for message in messages if message.role != "tool")]


def _merge_results(results: Sequence[HistoryMessage]) -> HistoryMessage:
    """Return several messages as one result, the first one's."""
    if len(results) == 1:
        return results[0]
    unshown = sum(message.unshown for message in results)
    return replace(results[0], text="\n\n".join(message.text for message in results), unshown=unshown)


def _mark_foreign(message: HistoryMessage) -> HistoryMessage:
    """Return a result with words that say it belongs to none of the reply's calls."""
    notice = FOREIGN.format(message.call_id[:_SHOWN])
    return message if message.text.startswith(notice) else replace(message, text=f"{notice}\n{message.text}")
