"""What an agent tells, as the messages that a chat template is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.asked import Schemas, Told
from atropos_agent.gateway.echo import arguments_of
from atropos_agent.gateway.forest import Sampled, Turn
from atropos_agent.types import Message
from tools.base import ToolCall, ToolResult


def opening(
    messages: Sequence[Told],
    fitted: FittedFormat,
    schemas: Schemas,
    retold: Callable[[Told], Turn | None],
    check: Callable[[Sequence[Message]], None] | None = None,
) -> list[Message]:
    """Return the messages before a first reply, the tools in a system message where the template shows none.

    retold: finds replies of ours, which are told in our own words. check: is given the messages in these."""
    turns = [retold(told) for told in messages]
    given = [_message(told, turn) for told, turn in zip(messages, turns, strict=True)]
    if check is not None:
        check(given)
    names = {call.id: call.name for told in messages for call in told.calls}
    ids = {call.id: call.template_id for turn in turns if turn and turn.sampled for call in turn.sampled.answer.calls}
    for message in given:
        if message["role"] == "tool":
            number = message["tool_call_id"]
            message |= {"name": names.get(number, ""), "tool_call_id": ids.get(number, number)}
    if schemas and not fitted.shows_tools:
        preamble = given.pop(0)["content"] if given[0]["role"] == "system" else ""
        system = fitted.system_prompt(schemas, preamble=preamble, working_dir=None)
        given.insert(0, {"role": "system", "content": system})
    return fitted.opening(given)


def following(messages: Sequence[Told], fitted: FittedFormat, sampled: Sampled) -> list[Message]:
    """Return the messages behind a reply, which was sampled."""
    calls = {call.id: call.call or ToolCall(call.name, {}, call.template_id) for call in sampled.answer.calls}
    found: list[Message] = []
    results: list[ToolResult] = []
    for told in messages:
        if told.role == "tool":
            results.append(ToolResult(told.text, call=calls.get(told.call_id) or ToolCall("", {}, told.call_id)))
            continue
        found += _shown(results, fitted, sampled) + fitted.opening([_message(told, None)])
        results = []
    return found + _shown(results, fitted, sampled)


def folded(messages: Sequence[Told]) -> list[Told]:
    """Return messages for templates that take nothing but a reply behind results: what is said there stands in the last
    result."""
    found: list[list[Told]] = []
    for told in messages:
        if found and found[-1][0].role == "tool" and told.role in ("user", "system"):
            found[-1].append(told)
        else:
            found.append([told])
    return [replace(first, text="\n\n".join(one.text for one in (first, *others))) for first, *others in found]


def _shown(results: Sequence[ToolResult], fitted: FittedFormat, sampled: Sampled) -> list[Message]:
    return fitted.results(results, (), called=sampled.called) if results else []


def _message(told: Told, turn: Turn | None) -> Message:
    """Return a message in OpenAI's shape. turn: whose answer it tells; None where it is not ours."""
    message: Message = {"role": told.role, "content": told.text}
    if told.role == "tool":
        message["tool_call_id"] = told.call_id
    calls = [(call.id, call.name, arguments_of(call)) for call in told.calls]
    thinking = told.thinking
    if turn is not None and turn.sampled is not None:
        answer = turn.sampled.answer
        message["content"], thinking = answer.content, answer.thinking
        calls = [
            (call.template_id, call.name, call.call.arguments if call.call else call.text) for call in answer.calls
        ]
    broken = [f"{name}({arguments})" for _, name, arguments in calls if not isinstance(arguments, dict)]
    if broken:
        # No template takes what is no call.
        message["content"] = "\n".join(part for part in (message["content"], *broken) if part)
    elif calls:
        message["tool_calls"] = [
            {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, name, arguments in calls
        ]
    if thinking:
        message["reasoning_content"] = thinking
    return message
