"""Ask a run for its rollouts, groups, tasks and figures, from any process, while it goes on and afterwards.

    run = open_run("runs/swe-20260101-120000")
    for line in run.rollouts(task="fix-the-parser", step="5-9", least=0.5):
        saved = run.read(line["place"])            # turns, tokens, verdict
    run.resources["system_prompt"] = "Be brief."   # for all groups that begin later

Rollouts are found by an index beside them (`envs.runs.index`), which is brought up to date before each question.
The page is made of the same reader.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import orjson
from tokenizers import Tokenizer

from envs.records.atif import parts
from envs.records.disk import json_lines
from envs.records.metrics import Metrics
from envs.records.provenance import starts_of
from envs.records.read import SavedRollout
from envs.resources import Resource
from envs.running.database import OVER
from envs.running.journal import FILE_NAME
from envs.running.resources import FOLDER, request_version
from envs.runs import journal, search
from envs.runs.facts import KINDS
from envs.runs.index import SEPARATOR, Index
from envs.runs.reading import read_rollout

logger = logging.getLogger(__name__)

TOKENIZER = "tokenizer.json"
"""The tokenizer of a run, in its directory."""
EVIDENCE = 40
"""Quarantined tasks with shown evidence, the last ones."""
_EVIDENCE_BYTES = 2**22
QUIET_S = 60.0
"""Seconds without a change of its files after which a run is over."""
_MOST = 1000
"""Rollouts that are looked up together."""


class NoRun(ValueError):
    """A directory holds no run; the message names it."""


@dataclass(frozen=True)
class RunReader:
    """A run on disk. Made by `open_run`; `close` deletes an index that could not be kept in the run's directory.

    Filters are those of the page (`envs.runs.search.Filters`): task, step, least and most (of the reward), outcome,
    stop, trouble, sign, tag, tool, agent, version (of the weights), resource (name=version), group, kind, q (words).
    """

    directory: Path
    index: Index
    tokenizer: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is kept for the questions."""
        self.index.close()

    # Rollouts

    def rollouts(self, **filters: object) -> Iterator[dict[str, Any]]:
        """Yield a line for each matching rollout, in the order of saving. Raises BadFilter."""
        place = -1
        while lines := self._behind(place, _filters(filters)):
            yield from lines
            place = lines[-1]["place"]

    def follow(self, *, pause_s: float = 1.0, quiet_s: float = QUIET_S, **filters: object) -> Iterator[dict[str, Any]]:
        """Yield the same, and then every rollout as it is saved, until the run is over.

        pause_s: between two looks. quiet_s: seconds without a change of its files by which it is over."""
        place, chosen, live = -1, _filters(filters), True
        while live:
            live = goes_on(self.directory, quiet_s=quiet_s)  # before the look, or the last ones would be missed
            while lines := self._behind(place, chosen):
                yield from lines
                place = lines[-1]["place"]
            if live:
                time.sleep(pause_s)

    async def following(
        self, *, pause_s: float = 1.0, quiet_s: float = QUIET_S, **filters: object
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the same as `follow`, without blocking the event loop."""
        place, chosen, live = -1, _filters(filters), True
        while live:
            live = await asyncio.to_thread(goes_on, self.directory, quiet_s=quiet_s)
            while lines := await asyncio.to_thread(self._behind, place, chosen):
                for line in lines:
                    yield line
                place = lines[-1]["place"]
            if live:
                await asyncio.sleep(pause_s)

    def read(self, place: int) -> SavedRollout:
        """Return the rollout at a line's `place`: its turns, rows and verdict. Raises NoRollout."""
        return read_rollout(self.directory, place)

    def figures(self, by: str = "", **filters: object) -> list[dict[str, Any]]:
        """Return number, mean reward, solved share and other means of the matching rollouts: in one line, or in a line
        for each step, task, group, stop or version. Raises BadFilter."""
        self.index.catch_up()
        with self.index.reading() as db:
            return search.figures(db, _filters(filters), by, size=-1)

    # Groups, tasks, figures

    def groups(self, *, state: str = "", task: str = "", resource: str = "") -> Iterator[journal.SavedGroup]:
        """Yield the matching groups, newest first. resource: as name=version. Raises RunDirectoryError."""
        yield from journal.groups(self.directory, state=state, task=task, resource=resource, size=-1)

    def group(self, number: int) -> journal.SavedGroup | None:
        """Return a group; None for an unknown one. Raises RunDirectoryError."""
        return journal.group(self.directory, number)

    def tasks(self, kind: str = "") -> list[dict[str, Any]]:
        """Return number, mean reward and solved share of each task's rollouts. kind: training or evaluation."""
        self.index.catch_up()
        with self.index.reading() as db:
            return search.task_lines(db, kind, size=-1)

    @property
    def resources(self) -> Steering:
        """Return the run's texts, such as prompt templates. An assignment is for all groups that begin later."""
        return Steering(self.directory)

    def metrics(self) -> Metrics | None:
        """Return the run's metrics; None if they can't be read."""
        try:
            return Metrics.from_json((self.directory / "metrics.json").read_bytes())
        except (OSError, ValueError, TypeError):
            return None

    def about(self) -> Mapping[str, Any]:
        """Return the run's starts (`run.json`); nothing if they can't be read."""
        found = _object(self.directory / "run.json")
        return {**found, "starts": starts_of(found)} if found else found

    def evaluates(self) -> bool:
        """Tell whether any evaluation is there, or has begun."""
        return bool(self.evaluation_files()) or any(self.directory.glob("eval-*.samples.jsonl"))

    def evaluations(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the evaluations' files with their names, by step; also those of `learn` beside the training run."""
        files = sorted(self.evaluation_files().items(), key=lambda item: (step_of(item[0]), item[0]))
        found = ((name, _object(path)) for name, path in files)
        return [(name, document) for name, document in found if document]

    def evaluation_files(self) -> dict[str, Path]:
        """Return the paths of these files, by name."""
        paths = {path.stem: path for path in self.directory.glob("eval-*.json")}
        beside = self.directory.resolve().parent
        if journal.has_journal(self.directory) and (beside / "trainer").is_dir():
            paths |= {path.parent.name: path for path in beside.glob("eval-*/eval-0.json")}
        return paths

    def trainer(self) -> Sequence[Mapping[str, Any]]:
        """Return the lines of a trainer's steps, if `learn` wrote them beside the run."""
        path = self.directory.parent / "trainer" / "steps.jsonl"
        return json_lines(path, 2**22)

    def failures(self) -> Sequence[Mapping[str, Any]]:
        """Return the evidence of quarantined tasks, newest first."""
        path = self.directory / "quarantined.jsonl"
        return json_lines(path, _EVIDENCE_BYTES)[-EVIDENCE:][::-1]

    @cached_property
    def decode(self) -> Callable[[int], str] | None:
        """Return the decoder of a token's text."""
        return decoder(self.tokenizer or self.directory / TOKENIZER)

    def _behind(self, place: int, filters: search.Filters) -> list[dict[str, Any]]:
        self.index.catch_up()
        with self.index.reading() as db:
            return [line_of(row) for row in search.behind(db, filters, place, _MOST)]


class Steering(Mapping[str, Resource]):
    """The newest versions of a run's texts that a group has. An assignment reaches a running run by a file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __getitem__(self, name: str) -> Resource:
        return self._newest()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest())

    def __len__(self) -> int:
        return len(self._newest())

    def __setitem__(self, name: str, text: str) -> None:
        """Wish a new version. The run refuses a text that can't take the place of the present one, in its log.
        Raises ValueError for what can be no name, OSError."""
        if not name.isidentifier():
            raise ValueError(f"{name!r} is no name of a resource")
        request_version(self._directory / FOLDER, name, text)

    def history(self) -> list[dict[str, Any]]:
        """Return every version: name, first (the number of its first group), at, version, text, source."""
        return [asdict(one) for one in journal.resources(self._directory)]

    def _newest(self) -> dict[str, Resource]:
        return {one.name: Resource(one.text, version=one.version) for one in journal.resources(self._directory)}


def open_run(directory: Path | str, tokenizer: Path | None = None) -> RunReader:
    """Open a run's directory for questions, also while the run goes on. tokenizer: its `tokenizer.json`, if it is not
    there. Raises NoRun."""
    directory = Path(directory)
    if not holds_run(directory):
        raise NoRun(f"{directory} holds no run: there is no {FILE_NAME} and no rollouts.jsonl")
    return RunReader(directory, Index(directory), tokenizer)


def step_of(evaluation: str) -> int:
    """Return the trainer's step in an evaluation's name, such as eval-8 or eval-000008."""
    found = re.search(r"\d+", evaluation)
    return int(found[0]) if found else 0


def line_of(row: Any) -> dict[str, Any]:
    """Return a rollout of the index as a line: its figures, and lists of its labels by kind."""
    line = dict(row)
    labels = [label.partition(":") for label in line.pop("labels").split(SEPARATOR) if label]
    line |= {f"{kind}s": [name for one, _, name in labels if one == kind] for kind in KINDS if kind != "agent"}
    line["agent"] = next((name for kind, _, name in labels if kind == "agent"), "")
    line["group"] = line.pop("grp")
    line["version"] = line.pop("policy")
    return line | {"solved": bool(line["solved"]), "evaluating": bool(line["evaluating"])}


def goes_on(directory: Path, now: float | None = None, *, quiet_s: float = QUIET_S) -> bool:
    """Tell whether a run goes on: its files were written in the last minute, and it has not reported its end since,
    as a killed one can't."""
    files = [directory / "metrics.json", directory / "state.db-wal", *(path for _, path in parts(directory)[-1:])]
    # An empty write-ahead log is made by whoever reads.
    times = [found.st_mtime for path in files if path.exists() and (found := path.stat()).st_size > 0]
    if not times or ((over := directory / OVER).exists() and over.stat().st_mtime >= max(times)):
        return False
    return (time.time() if now is None else now) - max(times) < quiet_s


def holds_run(path: Path) -> bool:
    """Tell whether a directory is a run's."""
    return path.is_dir() and (journal.has_journal(path) or bool(parts(path)))


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


def _filters(given: Mapping[str, object]) -> search.Filters:
    return search.Filters.parse({name: str(value) for name, value in given.items() if value is not None})


def _object(path: Path) -> Mapping[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
