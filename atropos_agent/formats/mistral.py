"""The formats of Mistral's models: calls after `[TOOL_CALLS]`.

Formats: the chat templates and mistral-common's tokenizers. Up to v7 one JSON list, each call with an id of nine
letters or digits; from v11 on `[TOOL_CALLS]name[ARGS]{…}` for each call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from atropos_agent.formats.reading import (
    Read,
    Section,
    TaggedFormat,
    named_call,
    read_arguments,
    read_json,
    skip_space,
    write_json,
)
from tools.base import ToolCall

CALLS, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"

_ID = re.compile(r"[A-Za-z0-9]{9}")
_NAME = re.compile(r"\s*([^\s\[{<]+)\s*")


def _id(number: int) -> str:
    return f"call{number:05d}"[-9:]


class Mistral(TaggedFormat):
    """The training format of Mistral models up to the tokenizer v7."""

    opening = closing = CALLS
    stray = False
    keys = ("arguments",)
    control = (CALLS,)
    shape = f'{CALLS}[{{"name": <tool name>, "arguments": <object with its arguments>}}]'

    def call_id(self, number: int, name: str) -> str:
        return _id(number)

    def read(self, text: str, start: int) -> Section:
        listed, end = read_json(text, start)
        if not isinstance(listed, list) or not listed:
            raise ValueError(f"a JSON list of calls must come after {CALLS}")
        section = Section(end)
        for value in listed:
            try:
                call = named_call(value, "arguments")
                if "id" in value and not (isinstance(value["id"], str) and _ID.fullmatch(value["id"])):
                    raise ValueError('the call\'s "id" is not of nine letters or digits; leave it out')
                section.calls.append(replace(call, id=value.get("id", "")))
            except ValueError as problem:
                section.problems.append(str(problem))
        return section

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        listed = [
            {
                "name": call.name,
                "arguments": dict(call.arguments),
                **({"id": call.id} if _ID.fullmatch(call.id) else {}),
            }
            for call in calls
        ]
        return f"{CALLS}{write_json(listed)}" if calls else ""


class MistralArgs(TaggedFormat):
    """The training format of Mistral models from the tokenizer v11 on."""

    opening = closing = CALLS
    stray = False
    inner = (ARGUMENTS, CALL_ID)
    control = (CALLS, ARGUMENTS, CALL_ID)
    shape = f"{CALLS}<tool name>{ARGUMENTS}<object with its arguments>"

    def call_id(self, number: int, name: str) -> str:
        return _id(number)

    def read(self, text: str, start: int) -> Section:
        found = _NAME.match(text, start)
        if found is None:
            raise ValueError(f"a tool's name must come after {CALLS}")
        place, given = found.end(), ""
        if text.startswith(CALL_ID, place):
            given = text[place + len(CALL_ID) :][:9]
            if not _ID.fullmatch(given):
                raise ValueError(f"no id of nine letters or digits comes after {CALL_ID}")
            place += len(CALL_ID) + len(given)
        # What skips special tokens, as vLLM does, leaves the name and its arguments with nothing between.
        place += len(ARGUMENTS) * text.startswith(ARGUMENTS, place)
        if not text.startswith("{", skip_space(text, place)):
            raise ValueError(f"{ARGUMENTS} and a JSON object must come after the tool's name")
        arguments, end = read_arguments(text, place)
        return Section(end, [Read(found[1], arguments, given)])

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        return "".join(map(self.write, calls))

    def write(self, call: ToolCall) -> str:
        return f"{CALLS}{call.name}{ARGUMENTS}{write_json(dict(call.arguments))}"
