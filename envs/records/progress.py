"""Show how far work is: a bar in a terminal, elsewhere a line every 15 seconds; both estimate what is left."""

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
    """Shows work while its `with` block is open. It may be told how far the work is from any thread.

    what: is being done. total: how much there is; None where that is not known. interval_s: between plain lines.
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
        """How much was done when this began, which says nothing of how fast it goes."""
        self._done, self._note = 0, ""
        self._shown = ""
        self._over = threading.Event()
        self._moved: list[tuple[logging.StreamHandler[Any], Any]] = []
        """Handlers whose records are printed above the bar, each with where they went before."""
        columns = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("what", "said")]
        self._drawn = Progress(columns[0], BarColumn(), columns[1], console=self.console, refresh_per_second=2)
        self._task = self._drawn.add_task("", total=total, what=what, said="")
        self._lines = threading.Thread(target=self._print_now_and_then, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._begun = self._clock()
        if self.console.is_terminal:
            self._move_log()  # before what is drawn takes the place of stderr
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
        """Say how much is done, and what was last. total: where only now that is known."""
        if self._before is None:
            self._before = done
        self._done = done
        self._note = self._note if note is None else note
        self._total = total or self._total
        if self.console.is_terminal:
            self._draw()

    def advance(self, note: str | None = None) -> None:
        """Say that one more is done, and which."""
        self._before = self._before or 0
        self.update(self._done + 1, note)

    def note(self, text: str) -> None:
        """Say what is being done now."""
        self.update(self._done, text)

    def line(self) -> str:
        """Return everything in one line of text."""
        return f"{self._what}: {self._said()}"

    def _move_log(self) -> None:
        handlers = [one for one in logging.getLogger().handlers if isinstance(one, logging.StreamHandler)]
        self._moved = [(one, one.stream) for one in handlers if one.stream is sys.stderr]
        for handler, _ in self._moved:
            handler.setStream(_Above(self.console))

    def _said(self) -> str:
        elapsed = self._clock() - self._begun
        counted = f"{self._done}" if self._total is None else f"{self._done} of {self._total}"
        left = left_s(self._done - (self._before or 0), self._done, self._total, elapsed)
        parts = [counted, duration(elapsed), f"about {duration(left)} left" if left else ""]
        return ", ".join(part for part in parts if part) + (f"; {self._note}" if self._note else "")

    def _draw(self) -> None:
        self._drawn.update(self._task, completed=self._done, total=self._total, what=self._what, said=self._said())

    def _print_now_and_then(self) -> None:
        while not self._over.wait(self._interval_s):
            self._print()

    def _print(self) -> None:
        line = self.line()
        if line != self._shown:
            self.console.print(line, highlight=False, soft_wrap=True, markup=False)
            self._shown = line


class _Above(io.TextIOBase):
    """A stream whose lines are printed above what is live on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        if text.strip():
            self._console.print(text.rstrip("\n"), highlight=False, soft_wrap=True, markup=False)
        return len(text)


def left_s(made: int, done: int, total: int | None, elapsed_s: float) -> float | None:
    """Return the seconds that are left when it goes on as it went: `made` in `elapsed_s`, and `done` of `total` by now.

    None where nothing was made yet, nothing is left, or the total is not known."""
    if total is None or made <= 0 or done >= total:
        return None
    return elapsed_s / made * (total - done)


def duration(seconds: float | None) -> str:
    """Return a time in hours, minutes and seconds: 3:07, 1:02:03."""
    minutes, rest = divmod(int(seconds or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
