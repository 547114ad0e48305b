"""Stretches of saved rollouts: whole lines of the files, forwards after a place and backwards before one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STRETCH = 2**22
"""Bytes of a stretch, if no line is longer."""

Parts = Sequence[tuple[int, Path]]
"""The files, each with the offset of its beginning (see `envs.records.atif.parts`)."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some lines, each with its place, and the new end of the covered part."""

    lines: Sequence[tuple[int, bytes]]
    low: int
    high: int


def end_of(known: Parts) -> int:
    """Return the offset after all saved rollouts."""
    return known[-1][0] + known[-1][1].stat().st_size if known else 0


def last_line_end(known: Parts) -> int:
    """Return the offset after the last whole line: an unfinished line does not count."""
    start, path = known[-1]
    with path.open("rb") as file:
        end = file.seek(0, 2)
        while end > 0:
            begin = max(0, end - STRETCH)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return start + begin + newline + 1
            end = begin
    return start


def behind(known: Parts, low: int, high: int, size: int = STRETCH) -> Stretch | None:
    """Return the whole lines after `high`; None without any."""
    for start, path in known:
        length = path.stat().st_size
        if start + length <= high:
            continue
        begin = max(high, start)  # a part between may have been moved away
        with path.open("rb") as file:
            file.seek(begin - start)
            data = file.read(size)
            while b"\n" not in data and (more := file.read(size)):
                data += more
        if b"\n" not in data:
            continue  # a line that will be finished in the last part alone
        data = data[: data.rindex(b"\n") + 1]
        return Stretch(_lines(begin, data), low, begin + len(data))
    return None


def before(known: Parts, low: int, high: int, size: int = STRETCH) -> Stretch | None:
    """Return the whole lines before `low`; None without any."""
    for start, path in reversed(known):
        if start >= low:
            continue
        end = min(low, start + path.stat().st_size)  # a part between may have been moved away
        with path.open("rb") as file:
            while True:
                begin = max(start, end - size)
                file.seek(begin - start)
                data = file.read(end - begin)
                # The last newline ends the last of these lines; the first one ends a line that began earlier.
                cut = 0 if begin == start else data.find(b"\n", 0, len(data) - 1) + 1
                if begin == start or cut > 0:
                    return Stretch(_lines(begin + cut, data[cut:]), begin + cut, high)
                size *= 2
    return None


def read_line(known: Parts, place: int, most: int = -1) -> bytes | None:
    """Return the line at a place, or its first `most` bytes; None if no part holds it."""
    for start, path in reversed(known):
        if start <= place < start + path.stat().st_size:
            with path.open("rb") as file:
                file.seek(place - start)
                return file.readline(most)
    return None


def _lines(place: int, data: bytes) -> list[tuple[int, bytes]]:
    found = []
    for line in data.splitlines(keepends=True):
        found.append((place, line))
        place += len(line)
    return found
