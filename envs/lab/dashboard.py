"""A run at a glance: a live table in a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from envs.lab.consumer import Statistics
from envs.records.metrics import Metrics

INTERVAL_S = 10.0
"""Between plain lines."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What is shown. None: not known yet. Latencies are (p50, p95) in seconds.

    target: groups after which the run ends; None for no end. groups_made, groups_sent: by the
    environment; groups_pulled, rows, bad_groups, duplicates: as the trainer's side saw them.
    signal_share: of the groups made, those whose rewards differ. failures: of ours, by kind.
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
        """What an environment's metrics and a consumer's statistics say together. `state`: in
        words, what the run is doing; the consumer's own when not given."""
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
            engine_s=_pair(rates, "engine"),
            tool_s=_pair(rates, "tool"),
            failures=dict(metrics.failures),
            stops=dict(metrics.stops),
            cheats=dict(metrics.cheats),
        )


class Dashboard:
    """Shows progress while its `with` block is open; `update` it about once a second."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        title: str = "atropos-agent",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console()
        self.title = title
        self._clock = clock
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._progress: Progress | None = None
        self._printed: Progress | None = None
        self._printed_at = float("-inf")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._live.stop()
        elif self._progress is not None and self._progress != self._printed:
            self._print(self._progress)

    def update(self, progress: Progress) -> None:
        """Show `progress` now, or, without a terminal, when the last line is ten seconds old."""
        self._progress = progress
        if self._live is not None:
            self._live.update(render(progress, title=self.title), refresh=True)
        elif self._clock() - self._printed_at >= INTERVAL_S:
            self._print(progress)

    def save_svg(self, path: Path) -> None:
        """Write the last state as a picture."""
        if self._progress is not None:
            paper = Console(record=True, file=io.StringIO(), width=100)
            paper.print(render(self._progress, title=self.title))
            paper.save_svg(str(path), title=self.title)

    def _print(self, progress: Progress) -> None:
        self.console.print(line(progress), highlight=False, soft_wrap=True, markup=False)
        self._printed, self._printed_at = progress, self._clock()


def line(progress: Progress) -> str:
    """Everything that matters in one line of text."""
    parts = [
        _duration(progress.elapsed_s),
        progress.state,
        f"groups {progress.groups_made} made, {_of(progress.groups_pulled, progress.target)} pulled",
        f"rows {progress.rows} checked, {progress.bad_groups} bad groups",
        f"reward {_number(progress.reward_mean, 3)}, {_percent(progress.signal_share)} of groups differ",
        f"{_number(progress.turns, 1)} turns",
        f"{_number(progress.tokens_per_s, 1)} tokens/s",
        f"engine {_latency(progress.engine_s)}",
        f"tools {_latency(progress.tool_s)}",
        f"failures {_counts(progress.failures)}",
        f"signs of cheating {_counts(progress.cheats)}" if progress.cheats else "",
    ]
    return " | ".join(part for part in parts if part)


def render(progress: Progress, *, title: str = "atropos-agent") -> RenderableType:
    """The table."""
    sections = Table.grid(padding=(0, 2), expand=True)
    sections.add_row(
        _section(
            "Groups",
            ("made", f"{progress.groups_made}"),
            ("sent", f"{progress.groups_sent}"),
            ("pulled", _of(progress.groups_pulled, progress.target)),
            ("batches", f"{progress.batches}"),
            ("rows checked", f"{progress.rows}"),
            ("bad groups", Text(f"{progress.bad_groups}", "bold red" if progress.bad_groups else "green")),
        ),
        _section(
            "Rollouts",
            ("judged", f"{progress.rollouts}"),
            ("solved", f"{progress.solved}"),
            ("mean reward", _number(progress.reward_mean, 3)),
            ("groups differ", _percent(progress.signal_share)),
            ("turns each", _number(progress.turns, 1)),
            ("bad calls", f"{progress.malformed_calls}"),
        ),
        _section(
            "Speed (p50 / p95)",
            ("tokens/s", _number(progress.tokens_per_s, 1)),
            ("engine", _latency(progress.engine_s)),
            ("tools", _latency(progress.tool_s)),
            ("tool errors", f"{progress.tool_errors}"),
            ("rows twice", f"{progress.duplicates}"),
        ),
    )
    ends = Table.grid(padding=(0, 2))
    ends.add_row(Text("rollouts ended by", "dim"), Text(_counts(progress.stops)))
    failures = Text(_counts(progress.failures), "yellow" if progress.failures else "green")
    ends.add_row(Text("failures of ours", "dim"), failures)
    if progress.cheats:
        ends.add_row(Text("signs of cheating", "dim"), Text(_counts(progress.cheats), "yellow"))
    body: list[RenderableType] = [sections, Text(), ends]
    if progress.target:
        bar = ProgressBar(total=progress.target, completed=min(progress.groups_pulled, progress.target))
        body += [Text(), bar]
    return Panel(
        Group(*body),
        title=Text(title, "bold"),
        title_align="left",
        subtitle=Text(f"{progress.state}  {_duration(progress.elapsed_s)}".strip(), "dim"),
        subtitle_align="right",
        padding=(1, 2),
    )


def _section(heading: str, *rows: tuple[str, str | Text]) -> Group:
    section = Table.grid(padding=(0, 2))
    section.add_column(style="dim", no_wrap=True)
    section.add_column(justify="left")
    for name, value in rows:
        section.add_row(name, value)
    return Group(Text(heading, "bold cyan"), section)


def _pair(rates: Mapping[str, float], name: str) -> tuple[float, float] | None:
    return (rates[f"{name}_p50_s"], rates[f"{name}_p95_s"]) if f"{name}_p50_s" in rates else None


def _of(value: int, target: int | None) -> str:
    return f"{value}" if target is None else f"{value} of {target}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _latency(value: tuple[float, float] | None) -> str:
    return "–" if value is None else " / ".join(map(_seconds, value))


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
