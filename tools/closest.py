"""Find the lines of a file that come closest to a text not found in it."""

from __future__ import annotations

import difflib
import re

_MAX_LINES = 20_000
_MAX_WIDTH = 300
"""Longer files and lines are compared in part only, so an answer takes less than a second."""


def find_closest(wanted: str, text: str) -> tuple[str, int, int] | None:
    """Return why `wanted` is not in `text`, and the lines (from 0, end excluded) that come closest to it.

    None when nothing is similar."""
    unnumbered = re.sub(r"^ *\d+\t", "", wanted, flags=re.MULTILINE)
    if unnumbered != wanted and unnumbered in text:
        first = text[: text.index(unnumbered)].count("\n")
        return "leave out the line numbers", first, first + unnumbered.count("\n") + 1
    lines = text.split("\n")[:_MAX_LINES]
    span = _find_ignoring_whitespace(wanted, lines)
    if span:
        return "only the whitespace differs", *span
    span = _find_similar(wanted, lines)
    return ("the closest lines differ", *span) if span else None


def _find_ignoring_whitespace(wanted: str, lines: list[str]) -> tuple[int, int] | None:
    squeezed = ["".join(line.split()) for line in lines]
    target = "".join(wanted.split())
    start = "".join(squeezed).find(target) if target else -1
    if start < 0:
        return None
    first, last, position = -1, 0, 0
    for number, line in enumerate(squeezed):
        end = position + len(line)
        if first < 0 and start < end:
            first = number
        if position < start + len(target) and line:
            last = number
        position = end
    return first, last + 1


def _find_similar(wanted: str, lines: list[str]) -> tuple[int, int] | None:
    """Look for the longest wanted line and put the others around it."""
    sought = wanted.strip("\n").split("\n")
    anchor = max(range(len(sought)), key=lambda number: len(sought[number].strip()))
    candidates = {line.strip()[:_MAX_WIDTH]: number for number, line in reversed(list(enumerate(lines)))}
    found = difflib.get_close_matches(sought[anchor].strip()[:_MAX_WIDTH], candidates, n=1)
    if not found or not found[0]:
        return None
    first = max(0, candidates[found[0]] - anchor)
    return first, min(len(lines), first + len(sought))
