"""Write one HTML page of rollouts, complete in itself: no network, no script for the essentials.

The text of models and programs is hostile: everything is escaped, control characters are made
visible, and the page's own policy allows one script only, for sorting and filtering its table.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import PackageLoader, Template
from markupsafe import Markup

from envs.records.detail import Detail, detail_of, explanation_of, templates
from envs.records.disk import replace_file
from envs.records.read import SavedRollout
from envs.records.token_view import TokenView, token_view
from sandboxes.plurals import plural


@dataclass(frozen=True, slots=True)
class _Detail:
    """A rollout in full. rows: None if the page had no room for the tokens."""

    whole: Detail
    rows: Sequence[TokenView] | None


@dataclass(frozen=True, slots=True)
class _Line:
    """A rollout in the table. detail: None if the page had no room for it."""

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
    show ids. summary: further facts for the head of the page. The last `max_details` rollouts are
    shown in full, newest first, and the tokens of the last ones up to `max_tokens` (about 60 bytes each) in all;
    the page names its omissions. Raises OSError.
    """
    lines = _lines(list(rollouts), decode, max_details, max_tokens)
    source = files("envs.records") / "templates"
    style = (source / "report.css").read_text("utf-8")
    script = (source / "report.js").read_text("utf-8")
    page = _template().render(
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


@functools.cache
def _template() -> Template:
    """Return the page's template, which is compiled once in a process."""
    return templates(PackageLoader("envs.records")).get_template("report.html.j2")


def _lines(
    rollouts: Sequence[SavedRollout], decode: Callable[[int], str] | None, details: int, tokens: int
) -> list[_Line]:
    """Return the rollouts' lines, newest first, so many of them in full, with so many tokens."""
    lines: list[_Line] = []
    for number, rollout in zip(range(len(rollouts), 0, -1), reversed(rollouts), strict=True):
        detail = None
        if len(lines) < details:
            detail = _detail(rollout, decode, tokens)
            tokens -= sum(len(row.tokens) for row in rollout.result.segments)
        lines.append(_line(number, rollout, detail))
    return lines


def _line(number: int, rollout: SavedRollout, detail: _Detail | None) -> _Line:
    result = rollout.result
    errors = sum(item.is_error for step in result.steps for item in step.results)
    corrections = sum(step.correction is not None for step in result.steps)
    doubled = sum(len(row.doubled) for row in detail.rows) if detail and detail.rows else 0
    troubles = [
        *([plural(errors, "tool error")] if errors else []),
        *([plural(corrections, "malformed reply", "malformed replies")] if corrections else []),
        *([plural(doubled, "doubled control token")] if doubled else []),
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
        explanation=explanation_of(rollout),
        detail=detail,
    )


def _detail(rollout: SavedRollout, decode: Callable[[int], str] | None, room: int) -> _Detail:
    rows: list[TokenView] | None = None
    if room > 0:
        rows = []
        for row in rollout.result.segments:
            rows.append(token_view(row, decode, limit=max(0, room)))
            room -= len(row.tokens)
    return _Detail(detail_of(rollout), rows)


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


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
