"""The Hermes tool format: JSON calls in `<tool_call>` tags, results in `<tool_response>` tags.

A reply may think inside `<think>` and makes calls as
`<tool_call>{"name": …, "arguments": {…}}</tool_call>`; results go back as `<tool_response>`.

Format: NousResearch/Hermes-Function-Calling (prompt format of Hermes 2 Pro and later).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.formats.base import Reply, ToolFormat
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall

CALL, CALL_END = "<tool_call>", "</tool_call>"
SHAPE = f'{CALL}\n{{"name": <tool name>, "arguments": <object with its arguments>}}\n{CALL_END}'
"""How a call is shown. It is none itself: small models copy what they could send."""

RESPONSE, RESPONSE_END = "<tool_response>", "</tool_response>"


class Hermes(ToolFormat):
    """What Hermes, Qwen2.5 and Qwen3 models were trained on."""

    control = (CALL, CALL_END, RESPONSE, RESPONSE_END, THINK, THINK_END, "<tools>", "</tools>")
    frame = (f"{RESPONSE}\n", f"\n{RESPONSE_END}")

    def instructions(self, schemas: Sequence[Mapping[str, object]]) -> str:
        shown = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
        return (
            f"You have these tools:\n<tools>\n{shown}\n</tools>\n\n"
            "To call a tool, reply with\n"
            f"{SHAPE}\n"
            f"Several calls in one reply run in order. What they return comes back in {RESPONSE} tags. "
            f"You may think between {THINK} and {THINK_END} first. "
            "A reply without a call is your final answer."
        )

    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply:
        thinking, rest, problems = _split_thinking(text, thinking_open)
        calls: list[ToolCall] = []
        content: list[str] = []
        position = 0
        while (start := rest.find(CALL, position)) >= 0:
            content.append(rest[position:start])
            try:
                call, position = _read_call(rest, start + len(CALL))
            except ValueError as problem:
                problems.append(str(problem))
                position = _behind_malformed(rest, start)
                continue
            calls.append(ToolCall(call["name"], call["arguments"], f"call_{first_id + len(calls)}"))
        remainder = rest[position:]
        if CALL_END in remainder:
            problems.append("the end of a call without its start")
        content.append(remainder)
        return Reply(thinking, "".join(content).strip(), tuple(calls), tuple(problems))

    def write(self, call: ToolCall) -> str:
        text = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
        return f"{CALL}\n{text}\n{CALL_END}"

    def literals(self, text: str, *, thinking_open: bool = False) -> Sequence[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        position, inside = 0, thinking_open
        while True:
            if inside:
                if (end := text.find(THINK_END, position)) < 0:
                    return found
                position = end + len(THINK_END)
            call, thought = text.find(CALL, position), text.find(THINK, position)
            if call < 0:
                return found
            inside = 0 <= thought < call
            if inside:
                position = thought + len(THINK)
                continue
            try:
                _, position = _read_call(text, call + len(CALL))
            except ValueError:
                position = _behind_malformed(text, call)
            found.append((call, position))

    def correction(self, problems: Sequence[str]) -> str:
        listed = "\n".join(f"- {problem}" for problem in problems)
        return f"Error: not run, because it was malformed:\n{listed}\nWrite each call like this:\n{SHAPE}"


def _behind_malformed(text: str, start: int) -> int:
    """Return where reading goes on behind the malformed call at `start`: at its end, else at the next call."""
    end = text.find(CALL_END, start)
    following = text.find(CALL, start + len(CALL))
    if end >= 0 and (following < 0 or end < following):
        return end + len(CALL_END)
    return following if following >= 0 else len(text)


def _split_thinking(text: str, thinking_open: bool) -> tuple[str | None, str, list[str]]:
    """Return the thinking, the text outside it, and what is wrong with it: calls inside it do not run."""
    thoughts: list[str] = []
    outside: list[str] = []
    problems: list[str] = []
    rest = text
    inside = thinking_open
    while True:
        if inside:
            thought, closed, rest = rest.partition(THINK_END)
            thoughts.append(thought.strip())
            if not closed:
                problems.append("the thinking was never closed")
            if CALL in thought:
                problems.append(f"a call inside {THINK} does not run; close the thinking first")
            inside = False
            if not closed:
                break
        before, opened, rest = _partition_outside_calls(rest)
        outside.append(before)
        if not opened:
            break
        inside = True
    return ("\n".join(thoughts) if thoughts else None), "".join(outside), problems


def _partition_outside_calls(text: str) -> tuple[str, str, str]:
    """Split at the first `<think>` that is not part of a call's JSON."""
    position = 0
    while (think := text.find(THINK, position)) >= 0:
        call = text.find(CALL, position)
        if call < 0 or think < call:
            return text[:think], THINK, text[think + len(THINK) :]
        try:
            _, position = _read_call(text, call + len(CALL))
        except ValueError:
            position = call + len(CALL)
    return text, "", ""


def _read_call(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Read the JSON object at `start`; return it and the place behind its closing tag. Raises ValueError."""
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    try:
        # raw_decode stops where the object ends, so a closing tag inside a string is no problem.
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        hint = "; write a newline inside a string as \\n" if error.msg.startswith("Invalid control") else ""
        raise ValueError(f"the call is not valid JSON: {error.msg} at character {error.pos - start}{hint}") from None
    except RecursionError:
        raise ValueError("the call is not valid JSON: it is nested too deeply") from None
    while end < len(text) and text[end] in " \t\r\n":
        end += 1
    if not text.startswith(CALL_END, end):
        raise ValueError("the call is not closed right after its JSON object")
    if not isinstance(value, dict):
        raise ValueError('the call must be a JSON object with "name" and "arguments"')
    if not isinstance(value.get("name"), str) or not value["name"]:
        raise ValueError('the call has no "name" that is a string')
    if not isinstance(value.get("arguments"), dict):
        raise ValueError('the call has no "arguments" that is a JSON object')
    return value, end + len(CALL_END)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("the call's JSON has the same key twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"the call's JSON has {name}, which is not valid JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
