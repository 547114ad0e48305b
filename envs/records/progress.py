"""Show the progress of work: a bar in a terminal, else a line every 15 seconds, both with an estimate of the rest."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

INTERVAL_S = 15.0
"""Between plain lines."""


class Bar:
    """Shows work while its `with` block is open. Any thread may report progress.

    what: the work. total: its amount, or None if unknown. interval_s: between plain lines.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        console: Console | None = None,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console(stderr=True)
        self._what, self._total = what, total
        self._interval_s, self._clock = interval_s, clock
        self._begun = self._clock()
        self._before: int | None = None
        """Amount done before the beginning; it says nothing of the speed."""
        self._done, self._note = 0, ""
        self._shown = ""
        self._over = threading.Event()
        self._moved: list[tuple[logging.StreamHandler[Any], Any]] = []
        """Handlers with records above the bar, each with its former stream."""
        columns = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("what", "status")]
        self._drawn = Progress(columns[0], BarColumn(), columns[1], console=self.console, refresh_per_second=2)
        self._task = self._drawn.add_task("", total=total, what=what, status="")
        self._lines = threading.Thread(target=self._print_if_due, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._begun = self._clock()
        if self.console.is_terminal:
            self._redirect_log()  # before what is drawn takes the place of stderr
            self._drawn.start()
        else:
            self._lines.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the last state on the screen."""
        self._over.set()
        if self.console.is_terminal:
            self._draw()
            self._drawn.stop()
            for handler, stream in self._moved:
                handler.setStream(stream)
        else:
            self._lines.join()
            if self._done or self._note:
                self._print()

    def update(self, done: int, note: str | None = None, *, total: int | None = None) -> None:
        """Report the amount done, and the last item. total: if only now known."""
        if self._before is None:
            self._before = done
        self._done = done
        self._note = self._note if note is None else note
        self._total = total or self._total
        if self.console.is_terminal:
            self._draw()

    def advance(self, note: str | None = None) -> None:
        """Report one more done, and its name."""
        self._before = self._before or 0
        self.update(self._done + 1, note)

    def note(self, text: str) -> None:
        """Name the present work."""
        self.update(self._done, text)

    def line(self) -> str:
        """Return everything in one line of text."""
        return f"{self._what}: {self._status()}"

    def _redirect_log(self) -> None:
        handlers = [one for one in logging.getLogger().handlers if isinstance(one, logging.StreamHandler)]
        self._moved = [(one, one.stream) for one in handlers if one.stream is sys.stderr]
        for handler, _ in self._moved:
            handler.setStream(_AboveLiveStream(self.console))

    def _status(self) -> str:
        elapsed = self._clock() - self._begun
        counted = f"{self._done}" if self._total is None else f"{self._done} of {self._total}"
        left = remaining_s(self._done - (self._before or 0), self._done, self._total, elapsed)
        parts = [counted, duration(elapsed), f"about {duration(left)} left" if left else ""]
        return ", ".join(part for part in parts if part) + (f"; {self._note}" if self._note else "")

    def _draw(self) -> None:
        self._drawn.update(self._task, completed=self._done, total=self._total, what=self._what, status=self._status())

    def _print_if_due(self) -> None:
        while not self._over.wait(self._interval_s):
            self._print()

    def _print(self) -> None:
        line = self.line()
        if line != self._shown:
            self.console.print(line, highlight=False, soft_wrap=True, markup=False)
            self._shown = line


class _AboveLiveStream(io.TextIOBase):
    """A stream; its lines are printed above the live part of a console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        if text.strip():
            self._console.print(text.rstrip("\n"), highlight=False, soft_wrap=True, markup=False)
        return len(text)


def remaining_s(made: int, done: int, total: int | None, elapsed_s: float) -> float | None:
    """Return the remaining seconds at the present speed: `made` in `elapsed_s`, and `done` of `total` by now.

    None if nothing was made yet, nothing is left, or the total is unknown."""
    if total is None or made <= 0 or done >= total:
        return None
    return elapsed_s / made * (total - done)


def duration(seconds: float | None) -> str:
    """Return a time in hours, minutes and seconds: 3:07, 1:02:03."""
    minutes, rest = divmod(int(seconds or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
