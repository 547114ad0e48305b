"""Turn an agent's history into messages for the chat template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, takewhile

from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.reading import written_json
from atropos_agent.gateway.echo import arguments_of
from atropos_agent.gateway.forest import SampledReply, Turn
from atropos_agent.gateway.requests import HistoryCall, HistoryMessage, Schemas
from atropos_agent.types import Message
from tools.base import ToolCall, ToolResult


def opening(
    messages: Sequence[HistoryMessage],
    fitted: FittedFormat,
    schemas: Schemas,
    retold: Callable[[HistoryMessage], Turn | None],
    check: Callable[[Sequence[Message]], None] | None = None,
) -> list[Message]:
    """Return the messages before a first reply, with the tools in a system message if the template shows none.

    retold: finds replies of ours; they are told in our own words. check: is given the messages with these replies."""
    turns = [retold(told) for told in messages]
    names = _call_ids(messages, turns, fitted)
    given = [_message(told, turn, ids) for told, turn, ids in zip(messages, turns, names, strict=True)]
    if check is not None:
        check(given)
    _name_results(messages, given, fitted)
    if schemas and not fitted.shows_tools:
        preamble = given.pop(0)["content"] if given[0]["role"] == "system" else ""
        system = fitted.system_prompt(schemas, preamble=preamble, working_dir=None)
        given.insert(0, {"role": "system", "content": system})
    return fitted.opening(given)


def foreign_calls(
    messages: Sequence[HistoryMessage], retold: Callable[[HistoryMessage], Turn | None]
) -> list[HistoryCall]:
    """Return the calls of a history that are none of ours."""
    return [call for told in messages if told.calls and retold(told) is None for call in told.calls]


def _call_ids(
    messages: Sequence[HistoryMessage], turns: Sequence[Turn | None], fitted: FittedFormat
) -> Iterator[Sequence[str]]:
    """Yield the ids of each message's calls for the chat template: our own, or unused ones of the same form."""
    ours = [turn.sampled.answer.calls if turn is not None and turn.sampled is not None else None for turn in turns]
    used = {call.template_id for calls in ours for call in calls or ()}
    numbers = count()
    for told, calls in zip(messages, ours, strict=True):
        if calls is not None:
            yield [call.template_id for call in calls]
            continue
        ids: list[str] = []
        for call in told.calls:
            ids.append(next(one for n in numbers if (one := fitted.format.call_id(n, call.name)) not in used))
        yield ids


def _name_results(messages: Sequence[HistoryMessage], given: Sequence[Message], fitted: FittedFormat) -> None:
    """Give each result the name and the id of the call before it in the chat template."""
    known: dict[str, list[tuple[str, str]]] = {}
    for told, message in zip(messages, given, strict=True):
        if message["role"] == "assistant":
            called = message.get("tool_calls", ())
            known = {}
            for call, shown in zip(told.calls, called, strict=False):
                known.setdefault(call.id, []).append((shown["function"]["name"], shown["id"]))
        elif message["role"] == "tool":
            there = known.get(told.call_id)
            name, number = there.pop(0) if there else ("", fitted.format.call_id(0, "unknown"))
            message |= {"name": name, "tool_call_id": number}


def following(messages: Sequence[HistoryMessage], fitted: FittedFormat, sampled: SampledReply) -> list[Message]:
    """Return the messages behind a sampled reply."""
    calls = {call.id: call.call or ToolCall(call.name, {}, call.template_id) for call in sampled.answer.calls}
    unknown = ToolCall("", {}, fitted.format.call_id(0, "unknown"))
    found: list[Message] = []
    results: list[ToolResult] = []
    for told in messages:
        if told.role == "tool":
            results.append(ToolResult(told.text, call=calls.get(told.call_id) or unknown))
            continue
        found += _shown(results, fitted, sampled) + fitted.opening([_message(told, None, ())])
        results = []
    return found + _shown(results, fitted, sampled)


def folded(messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """Return messages for templates that take nothing but a reply behind results: the text of other messages there is
    added to the last result."""
    found: list[list[HistoryMessage]] = []
    for told in messages:
        if found and found[-1][0].role == "tool" and told.role in ("user", "system"):
            found[-1].append(told)
        else:
            found.append([told])
    return [
        replace(
            first,
            text="\n\n".join(one.text for one in (first, *others)),
            unshown=sum(one.unshown for one in (first, *others)),
        )
        for first, *others in found
    ]


def answered(messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """Return messages for templates that take no call without a result behind it: such a call is told in words."""
    found: list[HistoryMessage] = []
    for place, told in enumerate(messages, start=1):
        results = {one.call_id for one in takewhile(lambda one: one.role == "tool", messages[place:])}
        left = [call for call in told.calls if call.id not in results]
        words = "\n".join(part for part in (told.text, *map(_words, left)) if part)
        kept = [call for call in told.calls if call.id in results]
        found.append(replace(told, text=words, calls=kept, handle=None, refers=()) if left else told)
    return found


def _words(call: HistoryCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, str) else written_json(call.arguments)
    return f"{call.name}({arguments})"


def _shown(results: Sequence[ToolResult], fitted: FittedFormat, sampled: SampledReply) -> list[Message]:
    return fitted.results(results, (), called=sampled.called) if results else []


def _message(told: HistoryMessage, turn: Turn | None, ids: Sequence[str]) -> Message:
    """Return a message in OpenAI's shape. turn: the one whose answer it tells; None if it is not ours. ids: of its
    calls."""
    message: Message = {"role": told.role, "content": told.text}
    if told.role == "tool":
        message["tool_call_id"] = told.call_id
    calls = [(call.name, arguments_of(call)) for call in told.calls]
    thinking = told.thinking
    if turn is not None and turn.sampled is not None:
        answer = turn.sampled.answer
        message["content"], thinking = answer.content, answer.thinking
        calls = [(call.name, call.call.arguments if call.call else call.text) for call in answer.calls]
    broken = [f"{name}({arguments})" for name, arguments in calls if not isinstance(arguments, dict)]
    if broken:
        # No template takes what is no call.
        message["content"] = "\n".join(part for part in (message["content"], *broken) if part)
    elif calls:
        message["tool_calls"] = [
            {"id": number, "type": "function", "function": {"name": name, "arguments": written_json(arguments)}}
            for number, (name, arguments) in zip(ids, calls, strict=True)
        ]
    if thinking:
        message["reasoning_content"] = thinking
    return message
