"""How a run went over time: a line of figures every ten seconds, and one for each change of the concurrency limit.

A line is a JSON object: `t` (Unix time), and either `limit` (the new one), `before` and `why`; or `step` (the
trainer's, of the newest judged rollout), `limit` and `active` rollouts at the same time, groups `working`, packets of
the `outbox` by state, and `rollouts` and `sampled` tokens since the run began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from envs.records.disk import append_line, json_lines

FILE_NAME = "timeline.jsonl"
_MOST_BYTES = 2**21
_LARGEST = 2**53


def append(directory: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Add lines. Raises OSError."""
    for line in lines:
        append_line(directory / FILE_NAME, orjson.dumps(line))


def read_timeline(directory: Path) -> list[dict[str, Any]]:
    """Return the newest lines, at most 2 MiB of them, without torn and foreign ones."""
    lines = json_lines(directory / FILE_NAME, _MOST_BYTES)
    return [line for line in lines if _is_number(line.get("t")) and all(map(_fits, line, line.values()))]


def _fits(name: str, value: Any) -> bool:
    """Tell whether a figure fits its name."""
    if name == "why":
        return isinstance(value, str)
    if name == "outbox":
        return value is None or (isinstance(value, dict) and all(map(_is_number, value.values())))
    return value is None or _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _LARGEST
