"""One HTML page of rollouts that needs nothing but itself: no network, no script for the essentials.

What models and programs wrote is hostile: everything is escaped, control characters are made
visible, and the page's own policy allows no script but the one that sorts and filters its table.
"""

from __future__ import annotations

import base64
import hashlib
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from atropos_agent.types import AgentStep, Message
from envs.records.disk import replace_file
from envs.records.read import SavedRollout
from envs.records.token_view import TokenView, token_view, visible
from envs.types import Seat
from tools.base import ToolCall

MAX_TEXT = 20_000
"""Characters of one message, reply or result; more are cut from its middle."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A reply and what it led to."""

    step: AgentStep
    exchanges: Sequence[tuple[ToolCall | None, str | None, bool]]


@dataclass(frozen=True, slots=True)
class _Detail:
    """A rollout in full. rows: None where the page had no room for the tokens."""

    opening: Sequence[Message]
    turns: Sequence[_Turn]
    rows: Sequence[TokenView] | None
    tests: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Line:
    """A rollout in the table. detail: None where the page had no room for it."""

    number: int
    id: str
    task_id: str
    band: str
    reward: float
    solved: bool
    stop: str
    steps: int
    tokens: int
    sampled: int
    seconds: float
    troubles: Sequence[str]
    explanation: str
    detail: _Detail | None


def write_report(
    rollouts: Iterable[SavedRollout],
    path: Path | str,
    *,
    decode: Callable[[int], str] | None = None,
    title: str = "Rollouts",
    summary: Mapping[str, object] | None = None,
    max_details: int = 200,
    max_tokens: int = 100_000,
) -> None:
    """Write the page to `path`, replacing it at once.

    decode: the text of one token id, special tokens kept, for the token views; without it they
    show ids. summary: further facts for the head of the page. The first `max_details` rollouts are
    shown in full, and the tokens of the first ones up to `max_tokens` (about 60 bytes each) in all;
    the page says what it leaves out. Raises OSError.
    """
    lines: list[_Line] = []
    room = max_tokens
    for number, rollout in enumerate(rollouts, start=1):
        detail = None
        if number <= max_details:
            detail = _detail(rollout, decode, room)
            room -= sum(len(row.tokens) for row in rollout.result.segments)
        lines.append(_line(number, rollout, detail))
    source = files("envs.records") / "templates"
    style = (source / "report.css").read_text("utf-8")
    script = (source / "report.js").read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"shown": _shown, "argument": _argument, "digits": _digits, "plural": _plural}
    page = environment.from_string((source / "report.html.j2").read_text("utf-8")).render(
        title=title,
        # Ours, not data: the policy admits exactly these two texts.
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        tiles=_tiles(lines),
        summary=[(str(name), str(value)) for name, value in (summary or {}).items()],
        lines=lines,
        bands=sorted({line.band for line in lines}),
        stops=sorted({line.stop for line in lines}),
        decoded=decode is not None,
        without_detail=sum(line.detail is None for line in lines),
        without_tokens=sum(line.detail is not None and line.detail.rows is None for line in lines),
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page.encode("utf-8", "replace"))


def _line(number: int, rollout: SavedRollout, detail: _Detail | None) -> _Line:
    result = rollout.result
    errors = sum(item.is_error for step in result.steps for item in step.results)
    corrections = sum(step.correction is not None for step in result.steps)
    doubled = sum(len(row.doubled) for row in detail.rows) if detail and detail.rows else 0
    troubles = [
        *([_plural(errors, "tool error")] if errors else []),
        *([_plural(corrections, "malformed reply", "malformed replies")] if corrections else []),
        *([_plural(doubled, "doubled control token")] if doubled else []),
        *([f"error: {result.error}"] if result.error else []),
    ]
    return _Line(
        number=number,
        id=rollout.id,
        task_id=rollout.task_id,
        band=rollout.band or ", ".join(rollout.tags),
        reward=rollout.reward.value,
        solved=rollout.verdict.solved,
        stop=result.stop_reason.value if result.stop_reason else "error",
        steps=len(result.steps),
        tokens=sum(len(row.tokens) for row in result.segments),
        sampled=result.sampled_tokens,
        seconds=rollout.timings_s.get("total", sum(rollout.timings_s.values())),
        troubles=troubles,
        explanation=_explanation(rollout),
        detail=detail,
    )


def _explanation(rollout: SavedRollout) -> str:
    shaped = rollout.reward.explanation
    seen = "".join(f"\nSeen: {sign}: {what}" for sign, what in rollout.verdict.seen.items())
    return f"{f'Reward {rollout.reward.value:g} ({shaped}). ' if shaped else ''}{rollout.verdict.explanation}{seen}"


def _detail(rollout: SavedRollout, decode: Callable[[int], str] | None, room: int) -> _Detail:
    result = rollout.result
    replies = [place for place, message in enumerate(result.messages) if message["role"] == "assistant"]
    sampled = len(result.steps)
    opening = result.messages[: replies[-sampled]] if 0 < sampled <= len(replies) else result.messages
    rows: list[TokenView] | None = None
    if room > 0:
        rows = []
        for row in result.segments:
            rows.append(token_view(row, decode, limit=max(0, room)))
            room -= len(row.tokens)
    return _Detail(
        opening=opening,
        turns=[_turn(step) for step in result.steps],
        rows=rows,
        tests=[(name, status.value) for name, status in sorted(rollout.verdict.tests.items())],
        facts=[
            *((f"{name} time", f"{seconds:.2f} s") for name, seconds in rollout.timings_s.items()),
            *((name, f"{value:g}") for name, value in rollout.verdict.metrics.items()),
            *((name, f"{count:,}") for name, count in asdict(result.counts).items() if count),
            *((name, str(value)) for name, value in _seat(rollout.seat).items() if value is not None),
            *((str(name), str(value)) for name, value in result.metadata.items()),
            *([("model", rollout.model_name)] if rollout.model_name else []),
        ],
    )


def _seat(seat: Seat) -> dict[str, int | None]:
    return {"group": seat.group, "member": seat.member, "trainer's step": seat.step}


def _turn(step: AgentStep) -> _Turn:
    """Return calls with their results; a result that belongs to no call stands alone."""
    exchanges: list[tuple[ToolCall | None, str | None, bool]] = []
    results = list(step.results)
    for call in step.calls:
        mine = next((item for item in results if item.call == call), None)
        if mine is not None:
            results.remove(mine)
        exchanges.append((call, mine.content if mine else None, mine.is_error if mine else False))
    exchanges += [(None, item.content, item.is_error) for item in results]
    return _Turn(step, exchanges)


def _tiles(lines: Sequence[_Line]) -> list[tuple[str, str]]:
    """Return the figures at the head of the page."""
    if not lines:
        return [("rollouts", "0")]
    solved = sum(line.solved for line in lines)
    return [
        ("rollouts", f"{len(lines):,}"),
        ("tasks", f"{len({line.task_id for line in lines}):,}"),
        ("solved", f"{solved:,} ({solved / len(lines):.0%})"),
        ("mean reward", f"{statistics.fmean(line.reward for line in lines):.3f}"),
        ("turns, mean", f"{statistics.fmean(line.steps for line in lines):.1f}"),
        ("tokens, median", f"{statistics.median(line.tokens for line in lines):,.0f}"),
        ("sampled tokens", f"{sum(line.sampled for line in lines):,}"),
    ]


def _shown(text: str) -> str:
    """Return text of a bounded length, its control characters visible."""
    if len(text) > MAX_TEXT:
        cut = len(text) - MAX_TEXT
        text = f"{text[: MAX_TEXT // 2]}\n[… {cut:,} characters are not shown …]\n{text[-MAX_TEXT // 2 :]}"
    return visible(text)


def _argument(value: Any) -> str:
    return _shown(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))


def _digits(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _plural(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
