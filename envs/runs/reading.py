"""Read single rollouts for the page, by their place in the saved files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from envs.records.atif import KEY, parts
from envs.records.read import SavedRollout, from_atif
from envs.runs.facts import facts_of, reply_text
from envs.runs.stretches import read_line

_AROUND = 70
"""Characters before and after a match."""


class NoRollout(ValueError):
    """There is no readable rollout at a place; the message gives the reason."""


def read_document(directory: Path, place: int) -> Mapping[str, Any]:
    """Return the document at a place. Raises NoRollout."""
    try:
        line = read_line(parts(directory), place)
    except OSError as error:
        raise NoRollout(f"the file with byte {place} can't be read: {error.strerror}") from error
    if line is None:
        raise NoRollout(f"nothing is saved at byte {place}; its file may have been moved away")
    try:
        document = orjson.loads(line)
        document["extra"][KEY]
    except (ValueError, KeyError, TypeError) as error:
        raise NoRollout(f"what is saved at byte {place} is no rollout, or damaged") from error
    return dict(document)


def read_rollout(directory: Path, place: int) -> SavedRollout:
    """Return the rollout at a place. Raises NoRollout."""
    try:
        return from_atif(read_document(directory, place))
    except NoRollout:
        raise
    except ValueError as error:
        raise NoRollout(str(error)) from error


@dataclass(frozen=True, slots=True)
class Snippet:
    """Place of a match. turn: the agent's; None in the instruction or the verdict."""

    turn: int | None
    where: str
    before: str
    match: str
    after: str


def snippet(document: Mapping[str, Any], words: Sequence[str]) -> Snippet | None:
    """Return the first place of one of the words in a rollout; None if other tokens hold its parts."""
    facts = facts_of(document)
    wanted = [re.compile(re.escape(word.rstrip("*")), re.IGNORECASE) for word in words]
    steps = [step for step in document["steps"] if KEY in step.get("extra", {})]
    texts: list[tuple[int | None, str, str]] = [(None, "instruction", facts.instruction)]
    for number, step in enumerate(steps, start=1):
        texts.append((number, "reply", reply_text(step)))
        results = step.get("observation", {}).get("results", ())
        texts += [(number, "output", str(item["content"])) for item in results]
    texts.append((None, "verdict", facts.output[-4000:]))
    for turn, where, text in texts:
        for word in wanted:
            if (match := word.search(text)) is not None:
                at, end = match.span()
                return Snippet(turn, where, text[max(0, at - _AROUND) : at], text[at:end], text[end : end + _AROUND])
    return None
