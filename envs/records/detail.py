"""A rollout in full, ready to be shown: its conversation, its time, why it has its score, its patch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jinja2 import BaseLoader, Environment, StrictUndefined

from atropos_agent.types import AgentResult, AgentStep, Message
from envs.records.atif import opening_messages
from envs.records.read import SavedRollout
from envs.records.token_view import visible
from sandboxes.plurals import plural
from tools.base import ToolCall

MAX_TEXT = 20_000
"""Characters of one message, reply or result; more are cut from its middle."""
MAX_PATCH_LINES = 4000
_ENDS = {"max_steps": "out of turns", "max_tokens": "out of tokens", "time": "out of time", "broke_off": "broke off"}
_RULE = re.compile(r"([-=_*#~])\1{9,}\n?")


@dataclass(frozen=True, slots=True)
class Turn:
    """A reply and its calls with results. A call or a result may be missing; the flag marks errors.

    part: the row in which the conversation goes on here, in words; "" in the same row as the turn before."""

    step: AgentStep
    part: str
    exchanges: Sequence[tuple[ToolCall | None, str | None, bool]]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a rollout's time, in seconds. kind: open, engine, tools, verifier or rest. turn: its number."""

    kind: str
    start: float
    seconds: float
    label: str
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a patch. kind: file, hunk, add, del or same. old, new: its number in the file, or None."""

    kind: str
    text: str
    old: int | None = None
    new: int | None = None


@dataclass(frozen=True, slots=True)
class Detail:
    """A rollout in full. patch, output: of the agent and of the verifier, if they are saved."""

    opening: Sequence[Message]
    turns: Sequence[Turn]
    tests: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    spans: Sequence[Span]
    patch: Sequence[PatchLine] = ()
    output: str = ""

    @property
    def seconds(self) -> float:
        """Return the total time of the spans."""
        return max((span.start + span.seconds for span in self.spans), default=0.0)


def detail_of(rollout: SavedRollout) -> Detail:
    """Return everything about a rollout but its tokens."""
    result, seat = rollout.result, rollout.seat
    place = {"group": seat.group, "member": seat.member, "trainer's step": seat.step}
    return Detail(
        opening=opening_messages(result),
        turns=[_turn(step, part) for step, part in zip(result.steps, _parts(result), strict=True)],
        tests=[(name, status.value) for name, status in sorted(rollout.verdict.tests.items())],
        facts=[
            *((f"{name} time", f"{seconds:.2f} s") for name, seconds in rollout.timings_s.items()),
            *((name, f"{value:g}") for name, value in rollout.verdict.metrics.items()),
            *((name, f"{count:,}") for name, count in asdict(result.counts).items() if count),
            *((name, str(value)) for name, value in place.items() if value is not None),
            *_conversations(result),
            *((str(name), str(value)) for name, value in result.metadata.items() if name != "conversations"),
            *([("model", result.conditions.model)] if result.conditions.model else []),
            *((str(name), str(value)) for name, value in result.conditions.sampling.items()),
        ],
        spans=list(_spans(rollout)),
        patch=patch_lines(rollout.verdict.patch),
        output=rollout.verdict.output,
    )


def _conversations(result: AgentResult) -> Iterator[tuple[str, str]]:
    """Yield what became of a rollout's conversations, of our agent's or of another's."""
    for name in ("conversations", "gateway"):
        facts = result.metadata.get(name, {})
        if (kinds := facts.get("branches", {})) and kinds.keys() != {"main"}:
            yield "turns by kind", ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        if compaction := facts.get("compaction"):
            text = plural(int(compaction["count"]), "time")
            yield "made shorter", f"{text}, by about {plural(int(compaction['tokens_saved']), 'token')}"
        for reason, tokens in facts.get("untrained_tokens", {}).items():
            yield f"sampled, not trained: {reason}", plural(int(tokens), "token")


def explanation_of(rollout: SavedRollout) -> str:
    """Say why a rollout has its score: the verifier's words, how the reward differs, and signs of cheating."""
    shaped = rollout.reward.explanation
    seen = "".join(f"\nSeen: {sign}: {what}" for sign, what in rollout.verdict.seen.items())
    return f"{f'Reward {rollout.reward.value:g} ({shaped}). ' if shaped else ''}{rollout.verdict.explanation}{seen}"


def patch_lines(patch: str) -> list[PatchLine]:
    """Take a unified diff apart. Whatever else it is stands there as text."""
    lines = patch.splitlines()
    found: list[PatchLine] = []
    old = new = 0
    inside = False
    for line in lines[:MAX_PATCH_LINES]:
        if line.startswith("@@"):
            inside = True
            old, new = _starts(line)
            found.append(PatchLine("hunk", line))
        elif line.startswith("diff "):
            inside = False
            found.append(PatchLine("file", line))
        elif inside and line.startswith("+"):
            found.append(PatchLine("add", line, None, new))
            new += 1
        elif inside and line.startswith("-"):
            found.append(PatchLine("del", line, old, None))
            old += 1
        elif inside and not line.startswith("\\"):
            found.append(PatchLine("same", line, old, new))
            old, new = old + 1, new + 1
        else:
            found.append(PatchLine("same" if inside else "file", line))
    if len(lines) > MAX_PATCH_LINES:
        found.append(PatchLine("hunk", f"[… {len(lines) - MAX_PATCH_LINES:,} lines are not shown …]"))
    return found


def shown(text: object) -> str:
    """Return text of a bounded length, its control characters visible."""
    text = str(text)  # a saved rollout may hold something else where a text belongs
    if len(text) > MAX_TEXT:
        cut = len(text) - MAX_TEXT
        text = f"{text[: MAX_TEXT // 2]}\n[… {cut:,} characters are not shown …]\n{text[-MAX_TEXT // 2 :]}"
    return visible(text)


def unruled(text: str) -> str:
    """Return text without the lines that programs draw."""
    return _RULE.sub("", text)


def argument(value: Any) -> str:
    """Return a call's argument as text."""
    return shown(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))


def digits(value: float) -> str:
    """Return a number with three decimals at most."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def templates(loader: BaseLoader) -> Environment:
    """Return the environment of pages: everything is escaped, and a missing value is an error."""
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader)
    made.filters |= {"shown": shown, "unruled": unruled, "argument": argument, "digits": digits, "plural": plural}
    made.filters |= {"ended": ended}
    return made


def ended(stop: str) -> str:
    """Return why a rollout ended, by its stop reason, in words; the reason itself if it is a word."""
    return _ENDS.get(stop, stop)


def agent_of(rollout: SavedRollout) -> str:
    """Return the agent's name: as a run of several names it, else another one's own; "" for ours."""
    return str(rollout.seat.agent or rollout.result.metadata.get("agent", {}).get("name", ""))


def _parts(result: AgentResult) -> Iterator[str]:
    """Yield for each turn the row in which it goes on, "" in the row of the turn before."""
    rows = {row.segment: position for position, row in enumerate(result.segments, 1)}
    before: int | None = None
    seen = set()
    for step in result.steps:
        changed = step.segment != before and (before is not None or len(rows) > 1)
        name = f"row {rows[step.segment]} of {len(rows)}" if step.segment in rows else "a part that is in no row"
        yield ("" if not changed else f"back in {name}" if step.segment in seen else name)
        seen.add(before := step.segment)


def _turn(step: AgentStep, part: str) -> Turn:
    """Return calls with their results; a result without a call stands alone."""
    exchanges: list[tuple[ToolCall | None, str | None, bool]] = []
    results = list(step.results)
    for call in step.calls:
        mine = next((item for item in results if item.call == call), None)
        if mine is not None:
            results.remove(mine)
        exchanges.append((call, mine.content if mine else None, mine.is_error if mine else False))
    exchanges += [(None, item.content, item.is_error) for item in results]
    return Turn(step, part, exchanges)


def _spans(rollout: SavedRollout) -> Iterator[Span]:
    """Yield a rollout's time in order; the unmeasured time is the rest."""
    times, now = rollout.timings_s, 0.0
    if opened := times.get("open"):
        yield Span("open", now, opened, "sandbox opened")
        now += opened
    agent_begins = now
    for step in rollout.result.steps:
        yield Span("engine", now, step.engine_s, f"turn {step.index + 1}: inference server", step.index)
        now += step.engine_s
        if step.calls or step.tools_s:
            named = ", ".join(call.name for call in step.calls)[:80]
            yield Span("tools", now, step.tools_s, f"turn {step.index + 1}: {named or 'tools'}", step.index)
            now += step.tools_s
    if (rest := agent_begins + times.get("agent", 0.0) - now) > 0.0005:
        yield Span("rest", now, rest, "between turns")
        now += rest
    if changed := times.get("sandbox"):
        yield Span("open", now, changed, "sandbox read and closed, the verifier's opened")
        now += changed
    if judged := times.get("verifier"):
        yield Span("verifier", now, judged, "verifier")
        now += judged
    if (rest := times.get("total", 0.0) - now) > 0.0005:
        yield Span("rest", now, rest, "before and after")


def _starts(line: str) -> tuple[int, int]:
    """Return the first lines of a hunk in the old and the new file; 1 by default."""
    found = []
    for part in line.split()[1:3]:
        number = part[1:].partition(",")[0]
        found.append(int(number) if number.isdecimal() and len(number) < 10 else 1)
    old, new = [*found, 1, 1][:2]
    return old, new
