"""Find the runs of the page: their directories, their files, and the decoders of their tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer

from envs.records.atif import parts
from envs.records.metrics import Metrics
from envs.viewer.index import Index
from envs.viewer.journal import has_journal

logger = logging.getLogger(__name__)

TOKENIZER = "tokenizer.json"
"""The tokenizer of a run, in its directory."""
EVIDENCE = 40
"""Quarantined tasks with shown evidence, the last ones."""
_EVIDENCE_BYTES = 2**22


class NoRun(ValueError):
    """A directory holds no run; the message names it."""


@dataclass(frozen=True)
class ShownRun:
    """A shown run. number: in the address."""

    number: int
    name: str
    directory: Path
    index: Index
    tokenizer: Path | None = None

    @cached_property
    def decode(self) -> Callable[[int], str] | None:
        """Return the decoder of a token's text."""
        return decoder(self.tokenizer or self.directory / TOKENIZER)

    def metrics(self) -> Metrics | None:
        """Return the run's metrics; None if they can't be read."""
        try:
            return Metrics.from_json((self.directory / "metrics.json").read_bytes())
        except (OSError, ValueError, TypeError):
            return None

    def about(self) -> Mapping[str, Any]:
        """Return the run's starts (`run.json`); nothing if they can't be read."""
        return _object(self.directory / "run.json")

    def evaluations(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the evaluations' files, by name; also those of `learn` beside the training run."""
        paths = {path.stem: path for path in self.directory.glob("eval-*.json")}
        beside = self.directory.resolve().parent
        if has_journal(self.directory) and (beside / "trainer").is_dir():
            paths |= {path.parent.name: path for path in beside.glob("eval-*/eval-0.json")}
        return [(name, found) for name, path in sorted(paths.items()) if (found := _object(path))]

    def trainer(self) -> Sequence[Mapping[str, Any]]:
        """Return the lines of a trainer's steps, if `learn` wrote them beside the run."""
        path = self.directory.parent / "trainer" / "steps.jsonl"
        return _lines(path, 2**22) if path.is_file() else []

    def failures(self) -> list[Mapping[str, Any]]:
        """Return the evidence of quarantined tasks, newest first."""
        path = self.directory / "quarantined.jsonl"
        return _lines(path, _EVIDENCE_BYTES)[-EVIDENCE:][::-1] if path.is_file() else []


def decoder(path: Path) -> Callable[[int], str] | None:
    """Return the decoder of a token's text, special tokens kept; None without a readable tokenizer."""
    if not path.is_file():
        return None
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        logger.warning("%s can't be read (%s); tokens are shown as ids", path, error)
        return None
    return lambda token: str(tokenizer.decode([token], skip_special_tokens=False))


def run_directories(paths: Sequence[Path]) -> list[Path]:
    """Return the directories of runs at these paths: each itself, or those in it, as `learn` makes them. Raises
    NoRun."""
    found = []
    for path in paths:
        if not path.is_dir():
            raise NoRun(f"{path} is no directory; give the directory of a run, such as runs/swe-20260101-120000")
        inside = [path] if _holds_run(path) else sorted(filter(_holds_run, path.iterdir()), key=_order)
        if not inside:
            raise NoRun(f"{path} holds no run: no state.db and no rollouts.jsonl, also not in the directories in it")
        found += inside
    return found


def open_runs(directories: Sequence[Path], tokenizer: Path | None = None) -> list[ShownRun]:
    """Open runs to show them. Runs with one name are told apart by their directories."""
    names = _names([directory.resolve() for directory in directories])
    return [
        ShownRun(number, name, directory, Index(directory), tokenizer)
        for number, (name, directory) in enumerate(zip(names, directories, strict=True))
    ]


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest differing ends of paths."""
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names


def pair_of(runs: Sequence[ShownRun], number: int | None = None) -> tuple[int, int]:
    """Return the numbers of two of several runs for a comparison: of one kind, training or evaluation.

    number: one of them; by default they are the first and the last evaluation, or the first two runs."""
    trains = [has_journal(run.directory) for run in runs]
    if number is None:
        evaluations = [run.number for run in runs if not trains[run.number]]
        number = evaluations[-1] if len(evaluations) > 1 else 1
    others = [run.number for run in runs if run.number != number]
    other = next((one for one in others if trains[one] == trains[number]), others[0])
    return min(number, other), max(number, other)


def _holds_run(path: Path) -> bool:
    return path.is_dir() and (has_journal(path) or bool(parts(path)))


def _order(path: Path) -> tuple[bool, str]:
    """The training run comes before its evaluations."""
    return not has_journal(path), path.name


def _object(path: Path) -> Mapping[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lines(path: Path, most: int) -> list[Mapping[str, Any]]:
    """Return the objects in the last `most` bytes of a file of JSON lines, without torn ones."""
    with path.open("rb") as file:
        begin = max(0, file.seek(0, 2) - most)
        file.seek(begin)
        lines = file.read(most).split(b"\n")
    found: list[Mapping[str, Any]] = []
    for line in lines[1:] if begin else lines:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
