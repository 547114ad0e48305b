"""A run at a glance: a live table in a terminal, lines of text elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from envs.lab.consumer import Statistics
from envs.records.metrics import Metrics
from envs.records.progress import INTERVAL_S, duration, remaining_s
from envs.records.stats import percent
from envs.records.tables import Sheet


class View(Protocol):
    """A state of a run, ready to be shown."""

    def render(self, title: str) -> RenderableType:
        """Return the table."""

    def line(self) -> str:
        """Return everything of importance in one line of text."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The parts of a run before it begins, by name, each with its progress."""

    elapsed_s: float
    parts: Mapping[str, str]

    def line(self) -> str:
        """Return everything in one line of text."""
        return " | ".join((duration(self.elapsed_s), *(f"{name}: {state}" for name, state in self.parts.items())))

    def render(self, title: str) -> RenderableType:
        """Return the table."""
        table = Table.grid(padding=(0, 2))
        for name, state in self.parts.items():
            table.add_row(Text(name, "dim"), Text(state))
        elapsed = Text(duration(self.elapsed_s), "dim")
        return Panel(table, title=Text(title, "bold"), title_align="left", subtitle=elapsed, subtitle_align="right")


@dataclass(frozen=True, slots=True)
class Progress:
    """A run that makes groups. None: not known yet. Latencies are (p50, p95) in seconds.

    target: groups after which the run ends; None for no end. groups_made, groups_sent: by the
    environment; groups_pulled, rows, bad_groups, duplicates: by the trainer's side.
    signal_share: of the groups of several rollouts, those with different rewards. failures: infrastructure failures, by
    kind.
    """

    elapsed_s: float = 0.0
    state: str = ""
    target: int | None = None
    groups_made: int = 0
    groups_sent: int = 0
    groups_pulled: int = 0
    batches: int = 0
    rows: int = 0
    bad_groups: int = 0
    duplicates: int = 0
    rollouts: int = 0
    solved: int = 0
    reward_mean: float | None = None
    signal_share: float | None = None
    turns: float | None = None
    tokens_per_s: float | None = None
    malformed_calls: int = 0
    tool_errors: int = 0
    engine_s: tuple[float, float] | None = None
    tool_s: tuple[float, float] | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    stops: Mapping[str, int] = field(default_factory=dict)
    cheats: Mapping[str, int] = field(default_factory=dict)
    cheats_rise: bool = False

    @classmethod
    def of(
        cls,
        metrics: Metrics | None,
        statistics: Statistics | None,
        *,
        elapsed_s: float,
        target: int | None = None,
        state: str | None = None,
    ) -> Self:
        """Return the state from an environment's metrics and a consumer's statistics together. `state`: in
        words, the run's activity; the consumer's own by default."""
        metrics, statistics = metrics or Metrics(), statistics or Statistics()
        rates = metrics.scalars(now=metrics.updated or None)
        return cls(
            elapsed_s=elapsed_s,
            state=statistics.state if state is None else state,
            target=target,
            groups_made=metrics.groups,
            groups_sent=metrics.groups_sent,
            groups_pulled=statistics.groups,
            batches=statistics.batches,
            rows=statistics.rows,
            bad_groups=statistics.groups_with_problems,
            duplicates=statistics.duplicates,
            rollouts=metrics.rollouts,
            solved=metrics.solved,
            reward_mean=rates.get("reward_mean"),
            signal_share=rates.get("signal_share"),
            turns=rates.get("steps_per_rollout"),
            tokens_per_s=rates["sampled_tokens_per_s"] if metrics.rollouts else None,
            malformed_calls=metrics.malformed_calls,
            tool_errors=metrics.tool_errors,
            engine_s=_latency_pair(rates, "engine"),
            tool_s=_latency_pair(rates, "tool"),
            failures=dict(metrics.failures),
            stops=dict(metrics.stops),
            cheats=dict(metrics.cheats),
            cheats_rise=metrics.alarmed,
        )

    def _format_remaining(self) -> str:
        left = remaining_s(self.groups_pulled, self.groups_pulled, self.target, self.elapsed_s)
        return "" if left is None else f", about {duration(left)} left"

    def _format_signs(self) -> str:
        return _format_counts(self.cheats) + (" (rising)" if self.cheats_rise else "")

    def line(self) -> str:
        """Return everything of importance in one line of text."""
        parts = [
            f"{duration(self.elapsed_s)}{self._format_remaining()}",
            self.state,
            f"groups {self.groups_made} made, {_format_fraction(self.groups_pulled, self.target)} pulled",
            f"rows {self.rows} checked, {self.bad_groups} bad groups",
            f"reward {_format_number(self.reward_mean, 3)}, {percent(self.signal_share)} of groups differ",
            f"{_format_number(self.turns, 1)} turns",
            f"{_format_number(self.tokens_per_s, 1)} tokens/s",
            f"inference {_format_latency(self.engine_s)}",
            f"tools {_format_latency(self.tool_s)}",
            f"failures {_format_counts(self.failures)}",
            f"signs of cheating {self._format_signs()}" if self.cheats else "",
        ]
        return " | ".join(part for part in parts if part)

    def render(self, title: str) -> RenderableType:
        """Return the table."""
        ends = Table.grid(padding=(0, 2))
        ends.add_row(Text("rollouts ended by", "dim"), Text(_format_counts(self.stops)))
        failures = Text(_format_counts(self.failures), "yellow" if self.failures else "green")
        ends.add_row(Text("infrastructure failures", "dim"), failures)
        if self.cheats:
            ends.add_row(
                Text("signs of cheating", "dim"), Text(self._format_signs(), "red" if self.cheats_rise else "yellow")
            )
        body: list[RenderableType] = [self._sections(), Text(), ends]
        if self.target:
            bar = ProgressBar(total=self.target, completed=min(self.groups_pulled, self.target))
            body += [Text(), bar]
        return Panel(
            Group(*body),
            title=Text(title, "bold"),
            title_align="left",
            subtitle=Text(f"{self.state}  {duration(self.elapsed_s)}{self._format_remaining()}".strip(), "dim"),
            subtitle_align="right",
            padding=(1, 2),
        )

    def _sections(self) -> Table:
        sections = Table.grid(padding=(0, 2), expand=True)
        sections.add_row(
            _section(
                "Groups",
                ("made", f"{self.groups_made}"),
                ("sent", f"{self.groups_sent}"),
                ("pulled", _format_fraction(self.groups_pulled, self.target)),
                ("batches", f"{self.batches}"),
                ("rows checked", f"{self.rows}"),
                ("bad groups", Text(f"{self.bad_groups}", "bold red" if self.bad_groups else "green")),
            ),
            _section(
                "Rollouts",
                ("judged", f"{self.rollouts}"),
                ("solved", f"{self.solved}"),
                ("mean reward", _format_number(self.reward_mean, 3)),
                ("groups differ", percent(self.signal_share)),
                ("turns each", _format_number(self.turns, 1)),
                ("bad calls", f"{self.malformed_calls}"),
            ),
            _section(
                "Speed (p50 / p95)",
                ("tokens/s", _format_number(self.tokens_per_s, 1)),
                ("inference", _format_latency(self.engine_s)),
                ("tools", _format_latency(self.tool_s)),
                ("tool errors", f"{self.tool_errors}"),
                ("rows twice", f"{self.duplicates}"),
            ),
        )
        return sections


STEP_FIGURES = (
    ("step", "step", "d"),
    ("reward", "reward", ".3f"),
    ("solved", "solved", ".0%"),
    ("parsed", "parsed", ".0%"),
    ("entropy", "entropy", ".3f"),
    ("ratio", "ratio", ".3f"),
    ("clip_fraction", "clipped", ".1%"),
    ("mismatch_fresh", "mismatch", ".1e"),
    ("lag", "lag", ".1f"),
    ("trained_tokens", "tokens", "d"),
    ("seconds/wait", "wait s", ".0f"),
    ("seconds/train", "train s", ".0f"),
    ("failures", "failures", "d"),
)
"""Figures of a trainer's step: their place in its line, heading, format."""

_SHOWN_STEPS = 15


@dataclass(frozen=True, slots=True)
class Steps:
    """A run that trains, by the lines of its steps so far; at least one. target: the last step."""

    lines: Sequence[Mapping[str, Any]]
    target: int | None = None

    def line(self) -> str:
        """Return the last step as one line of text."""
        headings = (heading for _, heading, _ in STEP_FIGURES)
        cells = (f"{heading} {cell}" for heading, cell in zip(headings, _cells(self.lines[-1]), strict=True))
        return "  ".join([*cells, *filter(None, [self._format_remaining()])])

    def _format_remaining(self) -> str:
        """Return an estimate of the time left, by the last steps; evaluations are added to it."""
        last = self.lines[-_SHOWN_STEPS:]
        took = sum(sum((line.get("seconds") or {}).values()) for line in last)
        left = remaining_s(len(last), int(self.lines[-1].get("step") or 0), self.target, took)
        return "" if left is None else f"about {duration(left)} left"

    def render(self, title: str) -> RenderableType:
        """Return a table of the last steps, the newest above: what has no room is cut off below."""
        headings = (heading for _, heading, _ in STEP_FIGURES)
        table = Sheet(*headings, title=" ".join([title, self._format_remaining()]).strip())
        for line in reversed(self.lines[-_SHOWN_STEPS:]):
            table.add(*_cells(line))
        return table


class Dashboard:
    """Shows a run while its `with` block is open.

    interval_s: between plain lines; 0 for a line for each state.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        title: str = "atropos-agent",
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console()
        self.title = title
        self._interval_s = interval_s
        self._clock = clock
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._view: View | None = None
        self._printed: View | None = None
        self._printed_at = float("-inf")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._live.stop()
        elif self._view is not None and self._view != self._printed:
            self._print(self._view)

    def update(self, view: View) -> None:
        """Show `view` now, or, without a terminal, when the last line is old enough."""
        self._view = view
        if self._live is not None:
            self._live.update(view.render(self.title), refresh=True)
        elif self._clock() - self._printed_at >= self._interval_s:
            self._print(view)

    def save_svg(self, path: Path) -> None:
        """Write the last state as a picture."""
        if self._view is not None:
            make_console = Console(record=True, file=io.StringIO(), width=100)
            make_console.print(self._view.render(self.title))
            make_console.save_svg(str(path), title=self.title)

    def _print(self, view: View) -> None:
        self.console.print(view.line(), highlight=False, soft_wrap=True, markup=False)
        self._printed, self._printed_at = view, self._clock()


def _cells(line: Mapping[str, Any]) -> list[str]:
    cells = []
    for key, _, form in STEP_FIGURES:
        outer, _, inner = key.partition("/")
        value = line.get(outer)
        value = value.get(inner) if inner and value else value
        cells.append("–" if value is None else format(value, form))
    return cells


def _section(heading: str, *rows: tuple[str, str | Text]) -> Group:
    section = Table.grid(padding=(0, 2))
    section.add_column(style="dim", no_wrap=True)
    section.add_column(justify="left")
    for name, value in rows:
        section.add_row(name, value)
    return Group(Text(heading, "bold cyan"), section)


def _latency_pair(rates: Mapping[str, float], name: str) -> tuple[float, float] | None:
    return (rates[f"{name}_p50_s"], rates[f"{name}_p95_s"]) if f"{name}_p50_s" in rates else None


def _format_fraction(value: int, target: int | None) -> str:
    return f"{value}" if target is None else f"{value} of {target}"


def _format_number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _format_latency(value: tuple[float, float] | None) -> str:
    return "–" if value is None else " / ".join(map(_format_seconds, value))


def _format_seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"
