"""Lay out what commands print: tables that are whole in any width, of 80 columns where there is no terminal."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from sandboxes.log import without_control

_GAP = 2
"""Spaces after each column."""
_FOLDED = "↩"
"""Ends a line whose last word goes on in the next one."""


def make_console() -> Console:
    """Return the console for a command's results: as wide as the terminal, else as COLUMNS says, else 80.

    It wraps tables only. Other lines are printed whole, so that a path can be copied."""
    return Console(width=shutil.get_terminal_size().columns, soft_wrap=True, markup=False, highlight=False)


class Sheet:
    """A table, printed by rich. Cells are data, no markup.

    Lines are wrapped between words. Where the longest words don't fit, the rows stand side by side, as many as there is
    room for, each with its headings on the left. A word that is longer than a line is folded, with a mark.

    totals: the last row."""

    def __init__(self, *heads: str, title: str = "", caption: str = "", right: Sequence[str] = ()) -> None:
        self.heads = heads
        self.title, self.caption = title, caption
        self.rows: list[tuple[str, ...]] = []
        self.totals: tuple[str, ...] = ()
        self._right = frozenset(right)

    def add(self, *cells: str) -> None:
        """Add a row, a cell for each heading."""
        self.rows.append(tuple(map(without_control, cells)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [*self.rows, *([self.totals] if self.totals else [])]
        if self.title:
            yield Text(self.title, "italic", no_wrap=False, overflow="fold")
        widths = _widths(list(zip(self.heads, *rows, strict=True)), options.max_width)
        if widths:
            made = Table.grid(padding=(0, _GAP, 0, 0))
            for head, width in zip(self.heads, widths, strict=True):
                made.add_column(width=width, justify="right" if head in self._right else "left")
            made.add_row(*(Text(head, "bold") for head in self.heads))
            for row in rows:
                made.add_row(*map(Text, row))
            yield made
        else:
            yield from _columns_table(self.heads, rows, options.max_width)
        if self.caption:
            yield Text(self.caption, "italic", no_wrap=False, overflow="fold")


def _columns_table(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> Iterator[Table | str]:
    """Yield tables of a few rows, each of which is a column after that of the headings."""
    first = max(map(cell_len, heads))
    left = room - first - _GAP
    while rows:
        widths = [max(_longest_width(row, "\n"), 1) for row in rows]
        count = next((n for n in range(len(rows), 1, -1) if sum(widths[:n]) + (n - 1) * _GAP <= left), 1)
        chosen, rows = rows[:count], rows[count:]
        made = Table.grid(padding=(0, _GAP, 0, 0))
        made.add_column(width=first)
        for width in widths[:count]:
            made.add_column(width=min(width, left), overflow="fold")
        for head, *cells in zip(heads, *chosen, strict=True):
            if any(cells):
                made.add_row(Text(head, "bold"), *(Text(_split_long_words(cell, left)) for cell in cells))
        yield made
        if rows:
            yield ""


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return a width for each column, at least that of its longest word; nothing if there is too little room."""
    widths = [_longest_width(cells) for cells in columns]
    wanted = [_longest_width(cells, "\n") for cells in columns]
    left = room - sum(widths) - _GAP * (len(columns) - 1)
    if left < 0:
        return []
    for _ in range(left):
        lacks, column = max((want - width, at) for at, (want, width) in enumerate(zip(wanted, widths, strict=True)))
        widths[column] += lacks > 0
    return widths


def _longest_width(cells: Sequence[str], between: str | None = None) -> int:
    """Return the width of the longest word, or of the longest line."""
    return max((cell_len(part) for cell in cells for part in cell.split(between)), default=0)


def _split_long_words(cell: str, width: int) -> str:
    """Return a cell with the parts of longer words as words of their own, each with a mark."""

    def parts(word: re.Match[str]) -> str:
        step = max(width - 1, 1)
        pieces = [word[0][at : at + step] for at in range(0, len(word[0]), step)]
        return f"{_FOLDED}\n".join(pieces)

    return re.sub(rf"\S{{{width + 1},}}", parts, cell)
