"""Read fields of a request's body, with errors that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.gateway.requests import Refusal

_STRINGS, _CHARACTERS = 64, 1000
"""The most strings in a list, and characters in each: some lists go to inference servers, which take no more."""


def wrong(where: str, problem: str) -> Refusal:
    """Return the refusal of a field."""
    return Refusal(f"{where}: {problem}", param=where)


def objects(value: Any, where: str) -> Sequence[Mapping[str, Any]]:
    """Return a list of objects; empty if it is missing. Raises Refusal."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong(where, "must be a list")
    for place, one in enumerate(value):
        if not isinstance(one, dict):
            raise wrong(f"{where}[{place}]", "must be an object")
    return value


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """Return an object; an empty one if it is missing. Raises Refusal."""
    if value is not None and not isinstance(value, dict):
        raise wrong(where, "must be an object")
    return value or {}


def text(value: Any, where: str, *, default: str | None = None) -> str:
    """Return a string. default: used if it is missing. Raises Refusal."""
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise wrong(where, "must be a string")
    return value


def model(body: Mapping[str, Any]) -> str:
    """Return the name of the model, cut: an answer repeats it, in each event of a stream. Raises Refusal."""
    return text(body.get("model"), "model", default="")[:_CHARACTERS]


def whole(value: Any, where: str, *, least: int = 0) -> int | None:
    """Return an integer; None if it is missing. Raises Refusal."""
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise wrong(where, f"must be an integer of at least {least}")
    return value


def flag(value: Any, where: str) -> bool:
    """Return true or false; False if it is missing. Raises Refusal."""
    if value is not None and not isinstance(value, bool):
        raise wrong(where, "must be true or false")
    return bool(value)


def strings(value: Any, where: str) -> Sequence[str]:
    """Return a short list of short strings, with "?" for halves of surrogate pairs. A single string may stand for a
    list. Raises Refusal."""
    if value is None:
        return ()
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise wrong(where, "must be a string or a list of strings")
    if len(found) > _STRINGS or any(len(one) > _CHARACTERS for one in found):
        raise wrong(where, f"must be at most {_STRINGS} strings of at most {_CHARACTERS} characters")
    return tuple(one.encode("utf-8", "replace").decode() for one in found if one)
