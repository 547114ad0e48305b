"""Make the answer for an agent from a sampled reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.reading import decode_json
from atropos_agent.gateway.requests import Answer, GatewayRequest, ReplyCall
from atropos_agent.tokens.conversation import Completion
from atropos_agent.types import Reply
from tools.base import ToolCall

_NAMED = re.compile(r'"name"\s*:\s*"([^"\\\s]+)"')
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
_TRIES = 32
"""The most JSON objects after a call's own to search for the next call's arguments."""


def answer_of(
    text: str,
    reply: Reply,
    completion: Completion,
    request: GatewayRequest,
    fitted: FittedFormat,
    *,
    number: int,
    first_id: int,
    prompt_tokens: int,
    thinking_open: bool,
) -> Answer:
    """Return the answer for an agent.

    text: the reply as sampled; reply: the same, parsed. number: the answer's; first_id: of its first call."""
    content, stopped_at = _cut_at_stop(reply.content, request.stop)
    spans = [text[start:end] for start, end in fitted.format.literals(text, thinking_open=thinking_open)]
    names = {tool["function"]["name"] for tool in request.tools}
    calls = [
        ReplyCall(call.id, call.name, sampled, call, offered=call.name in names)
        for call, sampled in zip(reply.calls, _sampled_arguments(reply.calls, spans), strict=True)
    ]
    if reply.problems:
        broken = list(_broken_calls(spans, fitted, request, first_id + len(calls)))
        calls += broken
    return Answer(
        number,
        reply.thinking,
        content,
        _replace_ids(calls, first_id),
        "length" if completion.finish_reason == "length" and stopped_at is None else "stop",
        prompt_tokens,
        len(completion.ids),
        stopped_at,
        _count_thinking(reply, completion, fitted),
    )


def _count_thinking(reply: Reply, completion: Completion, fitted: FittedFormat) -> int:
    if fitted.template is None or not reply.thinking:
        return 0
    return min(len(fitted.template.encode(fitted.template.quote(reply.thinking))), len(completion.ids))


def _cut_at_stop(content: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """Return content up to the first of the stop strings, and this string. The inference server samples it."""
    found = min(((content.find(one), one) for one in stop if one in content), default=None)
    return (content, None) if found is None else (content[: found[0]].rstrip(), found[1])


def _sampled_arguments(calls: Sequence[ToolCall], spans: Sequence[str]) -> Iterator[str]:
    """Yield calls' arguments as they were sampled, in this order; as JSON if the format writes none.

    No object is decoded twice, and none within the arguments of an earlier call."""
    places = ((number, found.start()) for number, span in enumerate(spans) for found in re.finditer("(?!^){", span))
    behind, ahead = (0, 0), list[_Object]()
    for call in calls:
        found = next((one for one in ahead if one.value == call.arguments), None)
        while found is None and len(ahead) < _TRIES and (place := next(places, None)) is not None:
            if place >= behind and (one := _object_at(spans, place)) is not None:
                ahead.append(one)
                found = one if one.value == call.arguments else None
        if found is None:
            yield json.dumps(dict(call.arguments), ensure_ascii=False)
            continue
        yield spans[found.place[0]][found.place[1] : found.end]
        behind = found.place[0], found.end
        ahead = [one for one in ahead if one.place >= behind]


@dataclass(frozen=True, slots=True)
class _Object:
    """A JSON object in one of several texts: the text's number and the place in it, and the place after the object."""

    place: tuple[int, int]
    end: int
    value: Any


def _object_at(spans: Sequence[str], place: tuple[int, int]) -> _Object | None:
    try:
        value, end = decode_json(spans[place[0]], place[1])
    except (ValueError, RecursionError):
        return None
    return _Object(place, end, value)


def _broken_calls(
    spans: Sequence[str], fitted: FittedFormat, request: GatewayRequest, number: int
) -> Iterator[ReplyCall]:
    """Yield the unreadable calls with a readable name."""
    for span in spans:
        if not fitted.format.parse(span).problems:
            continue
        name = _name(span, [tool["function"]["name"] for tool in request.tools])
        if name is not None:
            yield ReplyCall(
                fitted.format.call_id(number, name), name, _text_after_name(span, name, fitted.format.control)
            )
            number += 1


def _name(span: str, tools: Sequence[str]) -> str | None:
    """Return the name of an unreadable call: the first tool named in it, else the value of its "name"."""
    found = [(place, name) for name in tools if name in span and (place := _place(span, name)) >= 0]
    named = _NAMED.search(span)
    return min(found)[1] if found else named[1] if named else None


def _place(span: str, name: str) -> int:
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", span)
    return found.start() if found else -1


def _text_after_name(span: str, name: str, control: Sequence[str]) -> str:
    """Return the text after a call's name: its arguments, as far as they go."""
    behind = span[_place(span, name) + len(name) :]
    arguments = _ARGUMENTS.search(behind)
    behind = behind[arguments.end() :] if arguments else behind.lstrip("\"'>: ,\n")
    for tag in control:
        behind = behind.rstrip().removesuffix(tag)
    return behind.strip()


def _replace_ids(calls: Sequence[ReplyCall], first_id: int) -> Sequence[ReplyCall]:
    """Return calls with ids of our own: a format's ids may occur twice, or hold characters replaced by clients
    (Kimi's do)."""
    return [
        replace(call, id=f"call_{number}", template_id=call.id) for number, call in enumerate(calls, start=first_id)
    ]


def input_of(call: ReplyCall) -> str:
    """Return the text in a call of a tool that takes text; the whole call's text if it could not be read."""
    return call.text if call.call is None else str(call.call.arguments.get("input", ""))


def object_of(call: ReplyCall) -> Mapping[str, Any]:
    """Return a call's arguments as an object; unreadable arguments as text in one."""
    return dict(call.call.arguments) if call.call is not None else {"raw": call.text}
