"""The harmony format of gpt-oss: messages in channels, each with a header.

Thinking stands in channel `analysis`, answers in `final`, and a call in `commentary` (or `analysis`) with a recipient
`functions.NAME`, before or after the channel's name. Text in `commentary` without a recipient is content.

Format: OpenAI's guide to the harmony response format. As in vLLM's parser, the content type may be left out; arguments
other than a JSON object are a problem here, even if this parser hands them on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atropos_agent.formats.base import ToolFormat
from atropos_agent.formats.reading import Read, read_arguments, skip_space, write_json
from atropos_agent.types import Reply
from tools.base import ToolCall

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
END, CALL, RETURN, CONSTRAIN = "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"
FUNCTIONS = "functions."

_HEADER = re.compile(
    r"\s*+(?:<\|start\|>\s*+assistant)?(?P<before>[^<]*+)<\|channel\|>(?P<channel>\s*+[a-z]++)(?P<behind>[^<]*+)"
    r"(?:<\|constrain\|>(?P<type>[^<]*+))?<\|message\|>"
)
_RECIPIENT = re.compile(r"(?:^|\s)to=(\S+)")
_ENDS = re.compile(r"<\|end\|>|<\|call\|>|<\|return\|>")


class Harmony(ToolFormat):
    """The training format of gpt-oss models."""

    control = (START, CHANNEL, MESSAGE, END, CALL, CONSTRAIN)
    ends = (CALL, END)
    channelled = True

    def instructions(self, schemas: Sequence[Mapping[str, object]]) -> str:
        shown = "\n".join(write_json(schema) for schema in schemas)
        return (
            f"# Tools\n\nCalls to these tools must go to the commentary channel, each to functions.<tool name>, as a "
            f"JSON object:\n{shown}"
        )

    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply:
        found = _Messages()
        place = 0
        while place < len(text):
            header = _HEADER.match(text, place)
            if header is None:
                found.add_rest(text[place:])
                break
            place = found.add(header, text)
        calls = [
            ToolCall(call.name, call.arguments, self.call_id(number, call.name))
            for number, call in enumerate(found.calls, start=first_id)
        ]
        return Reply(
            "\n".join(found.thoughts) if found.thoughts else None,
            "\n".join(found.content).strip(),
            tuple(calls),
            tuple(found.problems),
            found.orderly and bool(calls) and not found.problems,
        )

    def literals(self, text: str, *, thinking_open: bool = False) -> Sequence[tuple[int, int]]:
        # Thinking tags mean nothing in this format.
        return [(0, len(text))]

    def write(self, call: ToolCall) -> str:
        arguments = write_json(dict(call.arguments))
        return f"{CHANNEL}commentary to={FUNCTIONS}{call.name} {CONSTRAIN}json{MESSAGE}{arguments}"

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        return f"{CALL}{START}assistant".join(map(self.write, calls))

    def turn(self, reply: Reply) -> str:
        parts = [] if reply.thinking is None else [f"{CHANNEL}analysis{MESSAGE}{reply.thinking}"]
        if reply.content:
            parts.append(f"{CHANNEL}{'commentary' if reply.calls else 'final'}{MESSAGE}{reply.content}")
        if reply.calls:
            parts.append(self.write_all(reply.calls))
        return f"{END}{START}assistant".join(parts)

    def correction(self, problems: Sequence[str]) -> str:
        listed = "\n".join(f"- {problem}" for problem in problems)
        return (
            f"Error: not run, because it was malformed:\n{listed}\nSend each call to functions.<tool name> in the "
            "commentary channel, as a JSON object and nothing else."
        )


@dataclass(slots=True)
class _Messages:
    """The content of a reply's messages."""

    thoughts: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    calls: list[Read] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    orderly: bool = True

    def add(self, header: re.Match[str], text: str) -> int:
        """Take in the message after a header; return the beginning of the next one."""
        parts = (header[name] or "" for name in ("before", "behind", "type"))
        recipients = [found for part in parts for found in _RECIPIENT.findall(part)]
        if recipients:
            try:
                kind = header["type"] or _RECIPIENT.sub("", header["behind"])
                call, behind = _read(recipients, kind.strip(), text, header.end())
                self.calls.append(call)
                return behind
            except ValueError as problem:
                self.problems.append(str(problem))
        end = _ENDS.search(text, header.end())
        body = text[header.end() : end.start() if end else len(text)]
        match header["channel"].strip():
            case _ if recipients:
                pass
            case "analysis":
                self.orderly &= not (self.thoughts or self.content or self.calls)
                self.thoughts.append(body.strip())
            case "commentary" | "final":
                self.orderly &= not self.calls
                self.content.append(body)
            case other:
                self.problems.append(f"there is no channel {other!r}")
        return end.end() if end else len(text)

    def add_rest(self, rest: str) -> None:
        """Take in text without a header."""
        if any(token in rest for token in (START, CHANNEL, MESSAGE)):
            self.problems.append(f"a message's header is not closed with {MESSAGE}, or has no channel")
        else:
            self.content.append(rest)


def _read(recipients: Sequence[str], kind: str, text: str, start: int) -> tuple[Read, int]:
    """Return the call in a message to a tool, and the beginning of the next message. kind: the content's type; "" if
    the header names none. Raises ValueError."""
    name = recipients[0].removeprefix(FUNCTIONS)
    if len(recipients) > 1 or not recipients[0].startswith(FUNCTIONS) or not name:
        raise ValueError(f"a call must go to {FUNCTIONS}NAME, not to {' and '.join(recipients)}")
    if kind not in ("", "json"):
        raise ValueError(f"a call's content type must be json, not {kind}")
    if (place := skip_space(text, start)) == len(text) or _ENDS.match(text, place):
        raise ValueError("the call's arguments are missing: write {} where there are none")
    arguments, place = read_arguments(text, start)
    place = skip_space(text, place)
    end = _ENDS.match(text, place)
    if end is None and place < len(text):
        raise ValueError("there is text after the call's JSON object")
    return Read(name, arguments), end.end() if end else place
