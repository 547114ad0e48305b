"""Find the runs of the page, and name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.runs.index import Index
from envs.runs.journal import has_journal
from envs.runs.reader import NoRun, RunReader, holds_run


@dataclass(frozen=True)
class ShownRun(RunReader):
    """A shown run. number: in the address."""

    number: int = 0
    name: str = ""


def run_directories(paths: Sequence[Path]) -> list[Path]:
    """Return the directories of runs at these paths: each itself, or those in it, as `learn` makes them. Raises
    NoRun."""
    found = []
    for path in paths:
        if not path.is_dir():
            raise NoRun(f"{path} is no directory; give the directory of a run, such as runs/swe-20260101-120000")
        inside = [path] if holds_run(path) else sorted(filter(holds_run, path.iterdir()), key=_order)
        if not inside:
            raise NoRun(f"{path} holds no run: no state.db and no rollouts.jsonl, also not in the directories in it")
        found += inside
    return found


def open_runs(directories: Sequence[Path], tokenizer: Path | None = None) -> list[ShownRun]:
    """Open runs to show them. Their directories distinguish runs with one name."""
    names = _names([directory.resolve() for directory in directories])
    return [
        ShownRun(directory, Index(directory), tokenizer, number, name)
        for number, (name, directory) in enumerate(zip(names, directories, strict=True))
    ]


def open_more(runs: Sequence[ShownRun], directory: Path) -> ShownRun:
    """Open one more run beside those shown; their numbers and names stay."""
    named = _names([*(run.directory.resolve() for run in runs), directory.resolve()])
    return ShownRun(directory, Index(directory), runs[0].tokenizer if runs else None, len(runs), named[-1])


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest differing ends of paths. `learn` keeps its run below the directory that the user named."""
    paths = [path.parent if path.name == "environment" else path for path in paths]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names


def pair_of(runs: Sequence[ShownRun], number: int | None = None) -> tuple[int, int]:
    """Return the numbers of two of several runs for a comparison: of one kind, training or evaluation.

    number: one of them; by default they are the first and the last evaluation, or the first two runs. A run beside it
    in one folder comes before others."""
    trains = [has_journal(run.directory) for run in runs]
    if number is None:
        evaluations = [run.number for run in runs if not trains[run.number]]
        number = evaluations[-1] if len(evaluations) > 1 else 1
    others = [run.number for run in runs if run.number != number]
    alike = [one for one in others if trains[one] == trains[number]] or others
    beside = [one for one in alike if runs[one].directory.parent == runs[number].directory.parent]
    other = (beside or alike)[0]
    return min(number, other), max(number, other)


def _order(path: Path) -> tuple[bool, str]:
    """The training run comes before its evaluations."""
    return not has_journal(path), path.name
