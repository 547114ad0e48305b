"""How a chat template takes a reply's calls as such, in `tool_calls`, instead of as text.

Templates differ in the key for thinking, in whether arguments are an object or its JSON, and in their refusals: several
calls, or words before a call. `learn` finds out by showing a template marked calls: it takes a call
if the tool format reads it back from the template's text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from atropos_agent.tokens.probes import MARK, ReplyKind, mark
from atropos_agent.types import THINK, THINK_END, Message, Reply
from tools.base import ToolCall

Tools = Sequence[Mapping[str, Any]]
"""Schemas in OpenAI's function format."""

PROBE = "probe"
"""The name of the tool in marked calls."""

STUB: Tools = (
    {
        "type": "function",
        "function": {
            "name": PROBE,
            "description": "Probe.",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "string", "description": "Anything."}},
                "required": ["x"],
            },
        },
    },
)
"""Stands for the tools in probes, which only need some."""

THINKING_KEYS = ("reasoning_content", "reasoning", "thinking")


class CallFormat(Protocol):
    """The needed part of a tool format: see `atropos_agent.formats.ToolFormat`."""

    thinking: tuple[str, str]

    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply: ...

    def turn(self, reply: Reply) -> str: ...

    def call_id(self, number: int, name: str) -> str: ...


@dataclass(frozen=True, slots=True)
class CallShape:
    """The shape of a reply with calls for a template.

    thinking: the key of thinking; "content" if thinking stands in tags before the content; None if the
        template has no place for it.
    text_arguments: arguments are JSON, not an object.
    """

    format: CallFormat
    thinking: str | None = None
    text_arguments: bool = False

    def message(self, reply: Reply, quote: Callable[[str], str] = str) -> Message:
        """Return a reply as a message. quote: applied to all of its text."""
        message: Message = {"role": "assistant", "content": quote(reply.content)}
        if reply.thinking and self.thinking == "content":
            message["content"] = f"{THINK}\n{quote(reply.thinking)}\n{THINK_END}\n\n{message['content']}"
        elif reply.thinking and self.thinking is not None:
            message[self.thinking] = quote(reply.thinking)
        message["tool_calls"] = [
            {
                "id": quote(call.id),
                "type": "function",
                "function": {"name": quote(call.name), "arguments": self._arguments(map_texts(call.arguments, quote))},
            }
            for call in reply.calls
        ]
        return message

    def mark_message(self, message: Message, i: int) -> Message:
        """Return a message with calls and marks as its texts, the last of them mark i; names and ids stay."""
        calls = message["tool_calls"]
        names = [call["function"]["name"] for call in calls]
        thinking, content = self._parts(message)
        reply = Reply(
            mark(500 + i) if thinking else None,
            mark(501 + i) if content else "",
            [
                ToolCall(name, {"x": mark(i if place == len(calls) else 501 + i + place)}, call["id"])
                for place, (name, call) in enumerate(zip(names, calls, strict=True), start=1)
            ],
            (),
        )
        return self.message(reply)

    def closing(self, marked: Message, i: int) -> str:
        """Return the model's own text after mark i, the last of a marked message's."""
        calls = [ToolCall(call["function"]["name"], {"x": mark(i)}, call["id"]) for call in marked["tool_calls"]]
        written = self.format.turn(Reply(None, "", calls, ()))
        return written[written.rindex(MARK) + 1 :]

    def kind(self, message: Message, *, dropped: bool = False, emptied: bool = False) -> CallsKind:
        """Return the features by which templates tell such a message apart. dropped, emptied: as of `CallsKind`."""
        thinking, content = self._parts(message)
        return CallsKind(self, bool(thinking), bool(content), len(message["tool_calls"]) > 1, dropped, emptied)

    def has_same_content(self, reply: Reply, message: Message) -> bool:
        """Tell whether a reply has the content of a message, apart from ids."""
        read = self.message(reply)
        return self._parts(read) == self._parts(message) and [call["function"] for call in read["tool_calls"]] == [
            call["function"] for call in message["tool_calls"]
        ]

    def _parts(self, message: Message) -> tuple[str, str]:
        """Return a message's thinking and its content."""
        content = str(message["content"])
        if self.thinking == "content":
            thinking, closed, rest = content.partition(THINK_END)
            return (thinking.removeprefix(THINK).strip(), rest.strip()) if closed else ("", content)
        return str(message.get(self.thinking or "", "")), content

    def _arguments(self, arguments: Any) -> Any:
        return json.dumps(arguments, ensure_ascii=False) if self.text_arguments else arguments


@dataclass(frozen=True, slots=True)
class CallsKind:
    """The features by which templates tell replies with calls apart.

    dropped: parts of it have no place in the template.
    emptied: it wrote thinking tags with nothing between them.
    """

    shape: CallShape
    thought: bool = False
    content: bool = False
    several: bool = False
    dropped: bool = False
    emptied: bool = False

    def reply(self, i: int) -> Message:
        """Return a marked reply of this kind; its last mark is i."""
        shape = self.shape
        calls = [ToolCall(PROBE, {}, shape.format.call_id(i + n, PROBE)) for n in range(1 + self.several)]
        thinking = "x" if self.thought and not self.dropped else None
        return shape.mark_message(shape.message(Reply(thinking, "x" if self.content else "", calls, ())), i)

    def without_thinking(self) -> CallsKind:
        """Return the kind of the same reply without thinking."""
        return replace(self, thought=False, dropped=False, emptied=False)

    def as_template_kind(self) -> CallsKind:
        """Return the kind of the template's message."""
        return replace(self, dropped=False, emptied=False)


Kind = ReplyKind | CallsKind
"""The features of a reply."""


def results_of(message: Message, i: int) -> list[Message]:
    """Return marked results of a message's calls, with marks from i on."""
    return [
        {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": mark(i + n)}
        for n, call in enumerate(message.get("tool_calls", ()))
    ]


def texts_of(message: Message) -> list[str]:
    """Return all texts of a message that a template shows, apart from names and ids."""
    found = [str(message["content"])]
    found += [str(message[key]) for key in THINKING_KEYS if key in message]
    found += [json.dumps(call["function"]["arguments"], ensure_ascii=False) for call in message.get("tool_calls", ())]
    return found


def text_after(text: str, closing: str) -> str | None:
    """Return the text after the closing at its beginning, white space apart; None if it begins otherwise."""
    place = 0
    for character in "".join(closing.split()):
        while place < len(text) and text[place].isspace():
            place += 1
        if not text.startswith(character, place):
            return None
        place += 1
    return text[place:]


def map_texts(value: Any, quote: Callable[[str], str]) -> Any:
    """Return a JSON value with all its text quoted, keys too."""
    match value:
        case str():
            return quote(value)
        case dict():
            return {quote(str(key)): map_texts(one, quote) for key, one in value.items()}
        case list() | tuple():
            return [map_texts(one, quote) for one in value]
    return value


def learn(template: TakesCalls, tool_format: CallFormat) -> CallShape | None:
    """Return the shape in which a template takes the format's calls; None if it takes none."""
    for text_arguments in (False, True):
        plain = CallShape(tool_format, None, text_arguments)
        if not any(template.takes(CallsKind(plain, several=several)) for several in (False, True)):
            continue
        in_content = template.keeps_thinking_in_content and tool_format.thinking == (THINK, THINK_END)
        keys = [*THINKING_KEYS, *(["content"] if in_content else [])]
        shapes: Sequence[CallShape] = [replace(plain, thinking=key) for key in keys]
        return next((shape for shape in shapes if template.takes(CallsKind(shape, thought=True))), plain)
    return None


class TakesCalls(Protocol):
    """The needed part of a chat template: see `atropos_agent.tokens.template.ChatTemplate`."""

    @property
    def keeps_thinking_in_content(self) -> bool: ...

    def takes(self, kind: CallsKind) -> bool: ...
