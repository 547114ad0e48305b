"""Make values for JSON: everything written by a model becomes savable.

Nothing here raises. A value outside of JSON turns into text with a note, because a hostile argument of a tool call
must not cost a rollout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 32


def plain(value: object, depth: int = 0) -> Any:
    """Return `value` as None, bool, int, float, str, list and dict with text keys, for `orjson.dumps`.

    NaN, infinity and integers beyond 64 bits become text, as do values deeper than 32 levels.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if depth >= _MAX_DEPTH:
            return "(nested too deeply to be saved)"
        if isinstance(value, Mapping):
            return {plain_text(str(key)): plain(item, depth + 1) for key, item in value.items()}
        return [plain(item, depth + 1) for item in value]
    return plain_text(str(value))


def plain_text(text: str) -> str:
    """Return text for UTF-8: lone surrogates, allowed by JSON, become "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _number(value: int | float) -> int | float | str:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if -(2**63) <= value < 2**63:
        return int(value)
    # `str` refuses integers of more than 4,300 digits.
    return str(int(value)) if value.bit_length() < 10_000 else f"(an integer of {value.bit_length()} bits)"
