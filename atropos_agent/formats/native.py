"""Tools in an endpoint's own protocol: it shows them to the model, and gives calls as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.formats.base import ToolFormat
from atropos_agent.types import Message, Reply
from tools.base import ToolCall


class Native(ToolFormat):
    """No text at all: the endpoint writes the tools and reads the calls."""

    def instructions(self, schemas: Sequence[Mapping[str, object]]) -> str:
        return ""

    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply:
        return Reply(None, text, (), ())

    def write(self, call: ToolCall) -> str:
        return f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})"

    def correction(self, problems: Sequence[str]) -> str:
        listed = "\n".join(f"- {problem}" for problem in problems)
        return f"Not everything could be run:\n{listed}\nCall the tool again, with a JSON object as its arguments."


def read_native(message: Message, first_id: int) -> Reply:
    """Take a reply in OpenAI's shape apart. Calls whose arguments are no JSON object are taken out of the message,
    since no result can follow them. first_id: of its first call, if it has no id of its own."""
    calls: list[ToolCall] = []
    problems: list[str] = []
    kept: list[dict[str, Any]] = []
    for call in message.get("tool_calls") or ():
        name, text = call["function"]["name"], call["function"]["arguments"]
        if (arguments := _object(text)) is None:
            problems.append(f"the arguments of {name} are no JSON object: {text[:500]}")
            continue
        call["id"] = call["id"] or f"call_{first_id + len(calls)}"
        kept.append(call)
        calls.append(ToolCall(name, arguments, call["id"]))
    reply = Reply(message.get("reasoning"), message["content"], calls, problems)
    if problems:
        message["content"] = message["content"] or "(a call that could not be read)"
        message["tool_calls"] = kept
        for name in ("raw", *([] if kept else ["tool_calls"])):
            message.pop(name, None)
    return reply


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
