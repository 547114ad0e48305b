"""Values in a format's own words: Gemma 4's and Python's, read without an interpreter's evaluation."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from atropos_agent.formats.reading import DEEPEST, parse_finite, parse_whole, skip_space

_NUMBER = re.compile(r"-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z]++(?![\w.])")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\[^\n])*+\"|'(?:[^'\\\n]|\\[^\n])*+'")

Place = tuple[Any, int]
ReadKey = Callable[[str, int], tuple[str, int]]
"""Reads the key of a mapping at a place; returns it and the place after it. Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Literals:
    """A way to write values.

    text: reads a string at a place; returns None if none begins there. key: reads the key of a mapping.
    """

    text: Callable[[str, int], Place | None]
    key: ReadKey

    def read(self, source: str, start: int, depth: int = 0) -> Place:
        """Read the value at `start`, perhaps after white space; return it and the place after it.

        Raises ValueError, which says what is wrong."""
        if depth > DEEPEST:
            raise ValueError("a value of the call is nested too deeply")
        start = skip_space(source, start)
        if (found := self.text(source, start)) is not None:
            return found
        if source.startswith("[", start):
            return self._list(source, start + 1, depth)
        if source.startswith("{", start):
            return self.mapping(source, start + 1, depth)
        if (number := _NUMBER.match(source, start)) is not None:
            return _number(number[0]), number.end()
        if (word := _WORD.match(source, start)) is not None and word[0] in _WORDS:
            return _WORDS[word[0]], word.end()
        raise ValueError(f"a value of the call can't be read: {source[start : start + 20]!r}")

    def mapping(
        self,
        source: str,
        start: int,
        depth: int = 0,
        *,
        sign: str = ":",
        closing: str = "}",
        key_of: ReadKey | None = None,
    ) -> Place:
        """Read keys with their values up to the closing sign; the returned place is behind it.

        key_of: reads its keys in place of `key`."""
        found: dict[str, Any] = {}
        place = skip_space(source, start)
        while not source.startswith(closing, place):
            key, place = (key_of or self.key)(source, place)
            place = skip_space(source, place)
            if not source.startswith(sign, place):
                raise ValueError(f"no {sign} comes after {key!r}")
            if key in found:
                raise ValueError(f"the argument {key!r} is there twice")
            found[key], place = self.read(source, place + len(sign), depth + 1)
            place = _skip_comma(source, place, closing)
        return found, place + len(closing)

    def _list(self, source: str, start: int, depth: int) -> Place:
        found: list[Any] = []
        place = skip_space(source, start)
        while not source.startswith("]", place):
            value, place = self.read(source, place, depth + 1)
            found.append(value)
            place = _skip_comma(source, place, "]")
        return found, place + 1


def _skip_comma(source: str, place: int, closing: str) -> int:
    place = skip_space(source, place)
    if source.startswith(",", place):
        place = skip_space(source, place + 1)
        if not source.startswith(closing, place):
            return place
        raise ValueError("a comma comes after the last value")
    if source.startswith(closing, place):
        return place
    raise ValueError(f"a value is followed by neither a comma nor {closing}: {source[place : place + 20]!r}")


def _number(digits: str) -> int | float:
    return parse_whole(digits) if digits.lstrip("-").isdigit() else parse_finite(digits)


def names(pattern: re.Pattern[str]) -> ReadKey:
    """Return a reader of a tool's or an argument's name, which matches a pattern."""

    def read(text: str, start: int) -> tuple[str, int]:
        if (found := pattern.match(text, start)) is None:
            raise ValueError("the name of a tool or an argument is missing")
        return found[0], found.end()

    return read


def python_text(source: str, start: int) -> Place | None:
    """Read a string of Python's on one line. Raises ValueError for invalid escapes."""
    if not source.startswith(('"', "'"), start):
        return None
    found = _STRING.match(source, start)
    if found is None:
        raise ValueError("a string is not closed on its line; write a newline inside a string as \\n")
    try:
        return ast.literal_eval(found[0]), found.end()
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"a string can't be read: {error}") from None
