"""Make the frame of every page: the shown runs, and the parts of all pages."""

from __future__ import annotations

import functools
import hashlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import Response

from envs.records.atif import parts
from envs.records.detail import templates
from envs.records.timeline import FILE_NAME as TIMELINE
from envs.running.database import OVER, RunDirectoryError
from envs.runs import journal, search
from envs.runs.reader import goes_on
from envs.viewer.filling import Filling
from envs.viewer.runs import ShownRun, open_more, pair_of, run_directories
from envs.viewer.states import meaning, packets, tone

logger = logging.getLogger(__name__)

_SEEN = "x-seen"
MORE_S = 2.0
"""Between two looks for more runs, in seconds."""


class NotFoundError(ValueError):
    """Nothing stands at an address; the message repeats the address."""


class Frame:
    """The common parts of pages about some runs. base: the beginning of their addresses. roots: folders of runs, of
    which later ones are shown as well."""

    def __init__(self, runs: Sequence[ShownRun], filling: Filling, base: str, roots: Sequence[Path] = ()) -> None:
        self.runs = list(runs)
        self.base = base
        self._roots = list(roots)
        self._last_search = 0.0
        self._filling = filling

    def record_visit(self) -> None:
        """Record that a user looks at the page."""
        self._filling.record_visit()

    def find_new_runs(self) -> None:
        """Show the runs that have appeared in the folders of runs."""
        if not self._roots or time.monotonic() - self._last_search < MORE_S:
            return
        self._last_search = time.monotonic()
        known = {run.directory.resolve() for run in self.runs}
        for directory in run_directories(self._roots):
            if directory.resolve() not in known:
                more = open_more(self.runs, directory)
                self.runs.append(more)
                self._filling.add(more.index)

    def page(self, request: Request, template: str, run: ShownRun | None, status: int = 200, **values: Any) -> Response:
        """Make a page. run: its run; None for a page about several. values: the template's."""
        self._filling.record_visit()
        self.find_new_runs()
        html = (
            _templates()
            .get_template(template)
            .render(
                base=self.base,
                home=self.base if run is None else f"{self.base}/{run.number}",
                run=run,
                runs=self.runs,
                evaluates=run is not None and run.evaluates(),
                live=run is not None and goes_on(run.directory),
                coverage=None if run is None else run.index.coverage(),
                seen="" if run is None else _mark(run),
                here=request.url.path.removeprefix(self.base),
                **values,
            )
        )
        return Response(html.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")

    def unchanged(self, request: Request, run: ShownRun) -> Response | None:
        """Return an empty answer if the browser's page is up to date."""
        self._filling.record_visit()
        return Response(status_code=204) if request.headers.get(_SEEN) == _mark(run) else None

    def run(self, request: Request) -> ShownRun:
        """Return the run of an address. Raises NotFoundError."""
        return self.numbered(request.path_params["run"])

    def numbered(self, number: int) -> ShownRun:
        """Return a run by its number. Raises NotFoundError."""
        if not 0 <= number < len(self.runs):
            raise NotFoundError(f"there is no run {number}; this page shows {len(self.runs)}")
        return self.runs[number]


def standing_of(run: ShownRun) -> journal.Standing | None:
    """Return the state of a run's groups; None without a readable journal."""
    try:
        return journal.standing(run.directory)
    except RunDirectoryError as error:
        logger.warning("%s", error)
        return None


def number_in(request: Request, name: str, default: int = 0) -> int:
    """Return a number of a query, or `default`. Raises BadFilter."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isdecimal() and len(text) < 16):
        raise search.BadFilter(f"{name} {text!r} is no number")
    return int(text)


def _mark(run: ShownRun) -> str:
    """Return a mark of the page's data; it changes with them."""
    names = ["metrics.json", "state.db", "state.db-wal", TIMELINE, "quarantined.jsonl", OVER]
    names += ["rollouts.index", "rollouts.index-wal"]
    paths: list[Path] = [run.directory / name for name in names] + [path for _, path in parts(run.directory)]
    paths += run.evaluation_files().values()
    seen = []
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        seen.append(f"{path.name} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


@functools.cache
def _templates() -> Environment:
    """Return the templates of pages, each of which is compiled once in a process."""
    made = templates(ChoiceLoader([PackageLoader("envs.viewer"), PackageLoader("envs.records")]))
    made.filters |= {"query": urlencode, "bytes": _bytes}
    made.globals |= {"meaning": meaning, "tone": tone, "packets": packets, "pair_of": pair_of}
    return made


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    raise AssertionError
