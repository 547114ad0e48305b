"""Turn an agent's history into messages for the chat template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, takewhile

from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.reading import write_json
from atropos_agent.gateway.echo import pair_results
from atropos_agent.gateway.forest import SampledReply, Turn
from atropos_agent.gateway.requests import HistoryCall, HistoryMessage, Schemas
from atropos_agent.types import Message
from tools.base import ToolCall, ToolResult


def opening(
    messages: Sequence[HistoryMessage],
    fitted: FittedFormat,
    schemas: Schemas,
    find_turn: Callable[[HistoryMessage], Turn | None],
    check: Callable[[Iterable[Message]], list[Message]] = list,
) -> list[Message]:
    """Return the messages before a first reply, with the tools in a system message if the template shows none.

    find_turn: finds replies of ours; they keep our own words. check: makes the list of messages, with
    these replies: an agent may name a long one in a few words, again and again."""
    turns = [find_turn(message) for message in messages]
    names = _call_ids(messages, turns, fitted)
    given = check(_message(message, turn, ids) for message, turn, ids in zip(messages, turns, names, strict=True))
    _name_results(messages, turns, given, fitted)
    if schemas and not fitted.shows_tools:
        preamble = given.pop(0)["content"] if given[0]["role"] == "system" else ""
        system = fitted.system_prompt(schemas, preamble=preamble, working_dir=None)
        given.insert(0, {"role": "system", "content": system})
    return fitted.opening(given)


def foreign_calls(
    messages: Sequence[HistoryMessage], find_turn: Callable[[HistoryMessage], Turn | None]
) -> list[HistoryCall]:
    """Return the calls of a history that are none of ours."""
    return [call for message in messages if message.calls and find_turn(message) is None for call in message.calls]


def _call_ids(
    messages: Sequence[HistoryMessage], turns: Sequence[Turn | None], fitted: FittedFormat
) -> Iterator[Sequence[str]]:
    """Yield the ids of each message's calls for the chat template: our own, or unused ones of the same form."""
    ours = [turn.sampled.answer.calls if turn is not None and turn.sampled is not None else None for turn in turns]
    used = {call.template_id for calls in ours for call in calls or ()}
    numbers = count()
    for message, calls in zip(messages, ours, strict=True):
        if calls is not None:
            yield [call.template_id for call in calls]
            continue
        ids: list[str] = []
        for call in message.calls:
            ids.append(next(one for n in numbers if (one := fitted.format.call_id(n, call.name)) not in used))
        yield ids


def _name_results(
    messages: Sequence[HistoryMessage], turns: Sequence[Turn | None], given: Sequence[Message], fitted: FittedFormat
) -> None:
    """Give each result the name and the id of the call before it in the chat template."""
    known: dict[str, list[tuple[str, str]]] = {}
    for message, turn, rendered in zip(messages, turns, given, strict=True):
        if rendered["role"] == "assistant":
            # Broken calls are text; of our answers they are the last.
            calls = [call for call in message.calls if turn is not None or isinstance(call.meant, dict)]
            known = {}
            for call, shown in zip(calls, rendered.get("tool_calls", ()), strict=False):
                known.setdefault(call.id, []).append((shown["function"]["name"], shown["id"]))
        elif rendered["role"] == "tool":
            there = known.get(message.call_id)
            name, number = there.pop(0) if there else ("", fitted.format.call_id(0, "unknown"))
            rendered |= {"name": name, "tool_call_id": number}


def messages_after(
    messages: Sequence[HistoryMessage], fitted: FittedFormat, sampled: SampledReply, echo: HistoryMessage
) -> list[Message]:
    """Return the messages after a sampled reply. echo: the reply as the agent sent it back before them."""
    unknown = ToolCall("", {}, fitted.format.call_id(0, "unknown"))
    found: list[Message] = []
    results: list[ToolResult] = []
    for message, call in pair_results(messages, echo, sampled.answer):
        if message.role == "tool":
            meant = unknown if call is None else call.call or ToolCall(call.name, {}, call.template_id)
            results.append(ToolResult(message.text, call=meant))
            continue
        found += _result_messages(results, fitted, sampled) + fitted.opening([_message(message, None, ())])
        results = []
    return found + _result_messages(results, fitted, sampled)


def fold_messages(messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """Return messages for templates that take nothing but a reply after results: the text of other messages there is
    added to the last result."""
    found: list[list[HistoryMessage]] = []
    for message in messages:
        if found and found[-1][0].role == "tool" and message.role in ("user", "system"):
            found[-1].append(message)
        else:
            found.append([message])
    return [
        replace(
            first,
            text="\n\n".join(one.text for one in (first, *others)),
            unshown=sum(one.unshown for one in (first, *others)),
        )
        for first, *others in found
    ]


def put_calls_into_words(messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """Return messages for templates that take no call without a result after it: such a call becomes text."""
    found: list[HistoryMessage] = []
    for place, message in enumerate(messages, start=1):
        results = {one.call_id for one in takewhile(lambda one: one.role == "tool", messages[place:])}
        left = [call for call in message.calls if call.id not in results]
        words = "\n".join(part for part in (message.text, *map(_call_in_words, left)) if part)
        kept = [call for call in message.calls if call.id in results]
        found.append(replace(message, text=words, calls=kept, handle=None, refers=()) if left else message)
    return found


def _call_in_words(call: HistoryCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, str) else write_json(call.arguments)
    return f"{call.name}({arguments})"


def _result_messages(results: Sequence[ToolResult], fitted: FittedFormat, sampled: SampledReply) -> list[Message]:
    return fitted.results(results, (), called=sampled.called) if results else []


def _message(message: HistoryMessage, turn: Turn | None, ids: Sequence[str]) -> Message:
    """Return a message in OpenAI's shape. turn: the one whose answer it tells; None if it is not ours. ids: of its
    calls."""
    rendered: Message = {"role": message.role, "content": message.text}
    if message.role == "tool":
        rendered["tool_call_id"] = message.call_id
    calls = [(call.name, call.meant) for call in message.calls]
    thinking = message.thinking
    if turn is not None and turn.sampled is not None:
        answer = turn.sampled.answer
        rendered["content"], thinking = answer.content, answer.thinking
        calls = [(call.name, call.call.arguments if call.call else call.text) for call in answer.calls]
    # No template takes what is no call.
    broken = [f"{name}({arguments})" for name, arguments in calls if not isinstance(arguments, dict)]
    rendered["content"] = "\n".join(part for part in (rendered["content"], *broken) if part)
    if len(broken) < len(calls):
        rendered["tool_calls"] = [
            {"id": number, "type": "function", "function": {"name": name, "arguments": write_json(arguments)}}
            for number, (name, arguments) in zip(ids, calls, strict=True)
            if isinstance(arguments, dict)
        ]
    if thinking:
        rendered["reasoning_content"] = thinking
    return rendered
