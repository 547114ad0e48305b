"""Shared reading of replies for tool formats: thinking separated from content, calls found by a tag, strict JSON."""

from __future__ import annotations

import json
import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from atropos_agent.formats.base import ToolFormat
from atropos_agent.types import THINK, THINK_END, Reply
from tools.base import ToolCall

SPACE = " \t\r\n"

DEEPEST = 100
"""Levels of objects and lists that a call may have within each other: their comparison and writing take frames of the
stack for each."""
_TOO_DEEP = "the call is not valid JSON: it is nested too deeply"
MOST_MALFORMED = 20
"""Malformed calls of one reply after which reading ends: the search in each may go to the reply's end."""
_WINDOW, _LONGEST_WORD = 4096, 16
"""Characters of JSON that are decoded first. An error within the last few of them may come from the cut."""
_TAG = re.compile(r"</?[^<>\s\"']+[>=]|</?[^<>\s\"']+(?= )|<[|\uff5c]\S*?>|\[[A-Z_]+\]")
"""The look of tags in the calls of formats and chat templates."""


@dataclass(frozen=True, slots=True)
class Read:
    """A call as it was read. id: from the text, if the format has one there."""

    name: str
    arguments: dict[str, Any]
    id: str = ""


@dataclass(slots=True)
class Section:
    """The content after an opening tag: calls, the problems of others, and its end."""

    end: int
    calls: list[Read] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _ScannedReply:
    """A reply in its parts. spans: the places of calls, malformed ones too; has_content: whether there was some."""

    thoughts: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    has_content: bool = False
    calls: list[Read] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    orderly: bool = True


class TaggedFormat(ToolFormat):
    """A format whose calls begin with a tag. A subclass defines the text after it.

    opening, closing: around a call, or around several.
    stray: whether a closing tag by itself is a call's without its start.
    inner: tags inside of a call, or of calls: one elsewhere is a call's without the tags around it.
    keys: of arguments in calls that are JSON objects with "name"; empty if calls are something else.
    wrapping: the template's own text around content and calls, which is no content.
    shape: the form of a call in messages to the model. It is no call itself: small models copy calls that they could
    send.
    """

    opening: str
    closing: str
    stray: bool = True
    inner: Sequence[str] = ()
    keys: Sequence[str] = ()
    wrapping: re.Pattern[str] | None = None
    shape: str

    @abstractmethod
    def read(self, text: str, start: int) -> Section:
        """Read the text after the opening tag that ends at `start`, in time proportional to this text.

        Raises ValueError, which says what is wrong, if its end is not clear."""

    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply:
        scanned = self._scan(text, thinking_open)
        return reply_of(self, scanned, first_id)

    def literals(self, text: str, *, thinking_open: bool = False) -> Sequence[tuple[int, int]]:
        return self._scan(text, thinking_open).spans

    def correction(self, problems: Sequence[str]) -> str:
        listed = "\n".join(f"- {problem}" for problem in problems)
        return f"Error: not run, because it was malformed:\n{listed}\nWrite each call like this:\n{self.shape}"

    def instructions(self, schemas: Sequence[Mapping[str, object]]) -> str:
        shown = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
        return (
            f"You have these tools:\n<tools>\n{shown}\n</tools>\n\nTo call a tool, reply with\n{self.shape}\n"
            "Several calls in one reply run in order. A reply without a call is your final answer."
        )

    def write(self, call: ToolCall) -> str:
        return self.write_all([call])  # a subclass defines one of the two

    def _scan(self, text: str, thinking_open: bool) -> _ScannedReply:
        found = _ScannedReply()
        think, think_end = self.thinking
        # A closing tag at the start says that there is no thinking.
        position, inside = 0, thinking_open or text.startswith(think_end, skip_space(text, 0))
        while True:
            if inside:
                end = text.find(think_end, position)
                thought = text[position:] if end < 0 else text[position:end]
                self._add_thought(found, thought, closed=end >= 0)
                if end < 0:
                    return found
                position, inside = end + len(think_end), False
            tag = first_of(text, position, self.opening, think)
            content = text[position : tag.start()] if tag else text[position:]
            _add_content(found, self.wrapping.sub("", content) if self.wrapping else content)
            if tag is None:
                self._end(found)
                return found
            if tag[0] == think:
                found.orderly &= not (found.thoughts or found.calls or found.has_content)
                position, inside = tag.end(), True
            elif len(found.problems) >= MOST_MALFORMED:
                found.problems.append(f"what comes after the first {MOST_MALFORMED} malformed calls was not read")
                found.spans.append((tag.start(), len(text)))
                return found
            else:
                position = self._call(found, text, tag.start())

    def _add_thought(self, found: _ScannedReply, thought: str, *, closed: bool) -> None:
        found.thoughts.append(thought.strip())
        if not closed:
            found.problems.append("the thinking was never closed")
        if self.opening in thought:
            found.problems.append(f"a call inside {self.thinking[0].strip()} does not run; close the thinking first")

    def _call(self, found: _ScannedReply, text: str, start: int) -> int:
        """Take in the call whose opening tag is at `start`; return the next place to read."""
        try:
            section = self.read(text, start + len(self.opening))
        except ValueError as problem:
            section = Section(self._skip_malformed(text, start), problems=[str(problem)])
        found.calls += section.calls
        found.problems += section.problems
        found.spans.append((start, section.end))
        return section.end

    def _skip_malformed(self, text: str, start: int) -> int:
        """Return the next place to read after the malformed call at `start`: its end, else the next call."""
        tag = first_of(text, start + len(self.opening), self.closing, self.opening)
        if tag is None:
            return len(text)
        return tag.start() if tag[0] == self.opening else tag.end()

    def _end(self, found: _ScannedReply) -> None:
        """Look for calls in content that lack the tags around them."""
        if self.stray and any(self.closing in part for part in found.content):
            found.problems.append("the end of a call without its start")
        elif not found.problems and self._add_untagged_calls(found):
            found.problems.append(f"a call stands outside of {self.opening.strip()}")

    def _add_untagged_calls(self, found: _ScannedReply) -> bool:
        if any(mark in part for part in found.content for mark in self.inner):
            return True
        return bool(self.keys) and not found.calls and holds_call("".join(found.content), *self.keys)


def _add_content(found: _ScannedReply, text: str) -> None:
    found.content.append(text)
    if text and text.strip():
        found.has_content = True
        found.orderly &= not found.calls


@cache
def _any_of(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, tags)))


def first_of(text: str, start: int, *tags: str) -> re.Match[str] | None:
    """Return the first of these tags from `start` on, and its place; None without one.

    It looks no further: a search for each by itself would go to the end of the text, again at every call."""
    return _any_of(tags).search(text, start)


def tags_of(written: str) -> Sequence[str]:
    """Return the tags in a call's text, thinking tags apart."""
    return tuple(tag for tag in dict.fromkeys(_TAG.findall(written)) if tag not in (THINK, THINK_END))


def reply_of(tool_format: ToolFormat, found: _ScannedReply, first_id: int) -> Reply:
    """Return the reply from its parts, its calls numbered from `first_id` on."""
    calls = tuple(
        ToolCall(call.name, call.arguments, call.id or tool_format.call_id(number, call.name))
        for number, call in enumerate(found.calls, start=first_id)
    )
    thinking = "\n".join(found.thoughts) if found.thoughts else None
    orderly = found.orderly and bool(calls) and not found.problems
    return Reply(thinking, "".join(found.content).strip(), calls, tuple(found.problems), orderly)


def skip_space(text: str, place: int) -> int:
    """Return the first place from `place` on that is no white space."""
    while place < len(text) and text[place] in SPACE:
        place += 1
    return place


def expect(text: str, place: int, tag: str, problem: str) -> int:
    """Return the place after a tag, perhaps after white space. Raises ValueError(problem)."""
    place = skip_space(text, place)
    if not text.startswith(tag, place):
        raise ValueError(problem)
    return place + len(tag)


def read_json(text: str, start: int) -> tuple[Any, int]:
    """Read the JSON value at `start`, perhaps after white space; return it and the place after it.

    It stops at the value's end, so a closing tag inside a string is no problem. Keys twice in one object, NaN,
    infinity and numbers that would become it are refused. Raises ValueError, which says what is wrong."""
    start = skip_space(text, start)
    try:
        value, end = decode_json(text, start)
    except json.JSONDecodeError as error:
        hint = "; write a newline inside a string as \\n" if error.msg.startswith("Invalid control") else ""
        raise ValueError(f"the call is not valid JSON: {error.msg} at character {error.pos}{hint}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("{", start, end) + text.count("[", start, end) > DEEPEST and _depth(value) > DEEPEST:
        raise ValueError(_TOO_DEEP)
    return value, end


def decode_json(text: str, start: int) -> tuple[Any, int]:
    """Decode the JSON value at `start`; return it and the place after it.

    Looks at a growing part of the text, because an error counts the lines of the whole input before its place.
    Raises JSONDecodeError, whose place counts from `start`."""
    size = _WINDOW
    while True:
        part = text[start : start + size]
        whole = start + size >= len(text)
        try:
            value, end = _DECODER.raw_decode(part)
            if whole or end < len(part):  # a number at its end may go on
                return value, start + end
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated string") or error.pos > len(part) - _LONGEST_WORD
            if whole or not cut:
                raise
        size *= 4


def _depth(value: Any) -> int:
    """Return how many objects and lists a value has within each other."""
    depth, level = 0, [value]
    while level := [inner for one in level if isinstance(one, dict | list) for inner in _inside(one)]:
        depth += 1
    return depth


def _inside(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def read_arguments(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Read a call's arguments, a JSON object, as `read_json` does."""
    value, end = read_json(text, start)
    if not isinstance(value, dict):
        raise ValueError("the call's arguments must be a JSON object")
    return value, end


def named_call(value: Any, *keys: str, name: str = "name") -> Read:
    """Return the call in a JSON object of its name and its arguments under one of the keys. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f'the call must be a JSON object with "{name}" and "{keys[0]}"')
    if not isinstance(value.get(name), str) or not value[name]:
        raise ValueError(f'the call has no "{name}" that is a string')
    given = [key for key in keys if key in value]
    if len(given) != 1 or not isinstance(value[given[0]], dict):
        raise ValueError(f'the call has no "{keys[0]}" that is a JSON object')
    return Read(value[name], value[given[0]])


def section_of(end: int, value: Any, *keys: str) -> Section:
    """Return a section with the value's call by `named_call`, or with its problem; both end at `end`."""
    try:
        return Section(end, [named_call(value, *keys)])
    except ValueError as problem:
        return Section(end, problems=[str(problem)])


_OBJECT = re.compile(r'\{\s*"(?:type"\s*:\s*"function"\s*,\s*")?(?:name|parameters|arguments|function)"\s*:')
"""The beginning of a call that is a JSON object."""


def begins_call(text: str, start: int) -> bool:
    """Tell whether a JSON object stands at `start` that begins like a call."""
    return _OBJECT.match(text, start) is not None


def holds_call(text: str, *keys: str) -> bool:
    """Tell whether a call stands in a text: a JSON object of "name" and its arguments under one of the keys.

    No part of the text is decoded twice."""
    found = _OBJECT.search(text)
    while found is not None:
        try:
            value, end = decode_json(text, found.start())
        except json.JSONDecodeError as error:
            end = found.start() + max(error.pos, 1)
        except ValueError:
            end = found.end()
        except RecursionError:
            return False
        else:
            if isinstance(value, dict) and "name" in value and any(key in value for key in keys):
                return True
        found = _OBJECT.search(text, end)
    return False


def write_json(value: Any) -> str:
    """Return a value as models write JSON."""
    return json.dumps(value, ensure_ascii=False)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("the call's JSON has the same key twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"the call's JSON has {name}, which is not valid JSON")


_TOO_LARGE = "the call has a number too large for JSON"


def parse_finite(digits: str) -> float:
    """Return the number with these digits. Raises ValueError if it would become infinity, which no JSON can hold."""
    if math.isinf(value := float(digits)):
        raise ValueError(_TOO_LARGE)
    return value


def parse_whole(digits: str) -> int:
    """Return the integer with these digits. Raises ValueError for more of them than Python reads."""
    try:
        return int(digits)
    except ValueError:
        raise ValueError(_TOO_LARGE) from None


_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=parse_finite, parse_int=parse_whole
)
