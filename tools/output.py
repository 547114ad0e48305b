"""Output as the model sees it: readable characters only, and not more of them than its prompt can bear."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[PX^_][^\x1b]{0,4096}\x1b\\"  # DCS, SOS, PM, APC
    r"|[ -/]*[0-~]"  # two-character sequences
    r")"
)
# What is neither text nor layout: control characters, what UTF-8 could not decode, lone surrogates.
_UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd\ud800-\udfff]+")

_DROPPED = re.compile(r"\[\.\.\. \d+ bytes dropped \.\.\.\]")
"""The line of `sandboxes.output.dropped_line`. Names in the lists of `find` begin otherwise."""


def render_terminal(text: str) -> str:
    """Return text as a terminal would leave it: escape sequences gone, a line overwritten by
    carriage returns (a progress bar) reduced to its last state, runs of other control
    characters and undecodable bytes shown as one U+FFFD."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\b" in text:
        text = _apply_backspaces(text)
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return replace_unreadable(text)


def replace_unreadable(text: str) -> str:
    """Return the text of a file: nothing is interpreted, runs of unreadable characters are shown as one U+FFFD."""
    return _UNREADABLE.sub("\ufffd", text)


def whole_lines(text: str) -> list[str]:
    """Return the lines of a command's output. If its middle was dropped, the lines cut there are left out: their rests
    would look like whole names."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _DROPPED.fullmatch(line):
            return lines[: max(number - 1, 0)] + lines[number + 2 :]
    return lines


def truncate(text: str, limit: int, cut_note: str = "") -> str:
    """Return `text` if it has at most `limit` characters, else its first and last halves with a line
    between them that says how many characters were cut; `cut_note` is added to this line."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[len(text) - (limit - limit // 2) :]
    return f"{head}\n[... {len(text) - limit:,} characters cut{cut_note} ...]\n{tail}"


def _apply_backspaces(text: str) -> str:
    kept: list[str] = []
    for character in text:
        if character != "\b":
            kept.append(character)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)


def _last_state(line: str) -> str:
    states = [state for state in line.split("\r") if state]
    return states[-1] if states else ""
