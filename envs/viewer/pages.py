"""The page's addresses, and what stands at each. Everything is read when it is asked for."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from jinja2 import ChoiceLoader, PackageLoader
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from envs.records.atif import parts
from envs.records.detail import templates
from envs.records.timeline import FILE_NAME as TIMELINE
from envs.records.timeline import read_timeline
from envs.running.database import RunDirectoryError
from envs.viewer import charts, journal, search
from envs.viewer.comparing import compare_runs
from envs.viewer.filling import Filling, goes_on
from envs.viewer.members import seats_of
from envs.viewer.opened import opened
from envs.viewer.policy import Guarded
from envs.viewer.reading import NoRollout, read_document, read_rollout, snippet
from envs.viewer.runs import ShownRun
from envs.viewer.states import meaning, tone
from envs.viewer.tokens import PAGE, NoRow, token_page

logger = logging.getLogger(__name__)

_STATIC = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_SEEN = "x-seen"


class NotThere(ValueError):
    """Nothing stands at an address; the message says what was looked for."""


class Pages:
    """Answers requests about some runs. key: what addresses begin with."""

    def __init__(self, runs: Sequence[ShownRun], filling: Filling, key: str) -> None:
        self._runs = runs
        self._filling = filling
        self._base = f"/{key}"
        self._templates = templates(ChoiceLoader([PackageLoader("envs.viewer"), PackageLoader("envs.records")]))
        self._templates.filters |= {"query": urlencode, "bytes": _bytes}
        self._templates.globals |= {"meaning": meaning, "tone": tone}

    def app(self) -> Starlette:
        """Return the application."""
        run = [
            Route("/", self.overview),
            Route("/steps", self.steps),
            Route("/rollouts", self.rollouts),
            Route("/rollouts/{place:int}", self.rollout),
            Route("/rollouts/{place:int}/tokens", self.tokens),
            Route("/rollouts/{place:int}/raw", self.raw),
            Route("/rollout/{id}", self.by_id),
            Route("/groups", self.groups),
            Route("/groups/{number:int}", self.group),
            Route("/failures", self.failures),
        ]
        inside = [
            Route("/", self.start),
            Route("/compare", self.compare),
            Route("/static/{name}", self.static),
            Mount("/{run:int}", routes=run),
        ]
        wrong = {kind: self._wrong for kind in (NotThere, NoRollout, NoRow, search.BadFilter, RunDirectoryError, 404)}
        return Starlette(
            routes=[Mount(self._base, routes=inside)], middleware=[Middleware(Guarded)], exception_handlers=wrong
        )

    # Pages

    def start(self, request: Request) -> Response:
        """List the runs; where there is one, lead to it."""
        if len(self._runs) == 1:
            return RedirectResponse(f"{self._base}/0/")
        standings = [(run, self._standing(run), run.index.coverage(), goes_on(run.directory)) for run in self._runs]
        return self._page(request, "runs.html.j2", None, standings=standings)

    def overview(self, request: Request) -> Response:
        """Show a run at a glance."""
        run = self._run(request)
        if (unchanged := self._unchanged(request, run)) is not None:
            return unchanged
        metrics, lines = run.metrics(), read_timeline(run.directory)
        with run.index.reading() as db:
            training, evaluations = (charts.step_sums(db, evaluating=kind) for kind in (False, True))
            labels = db.execute("SELECT kind, name, count FROM labels ORDER BY count DESC").fetchall()
        sums = training or evaluations
        return self._page(
            request,
            "overview.html.j2",
            run,
            standing=self._standing(run),
            metrics=metrics,
            totals=_totals(sums),
            evaluated=_totals(evaluations) if training else None,
            charts=[*charts.step_charts(sums, metrics, run.trainer()), *charts.time_charts(lines)],
            changes=charts.changes(lines)[:12],
            signs=[(row["name"], row["count"]) for row in labels if row["kind"] == "sign"],
            stops=[(row["name"], row["count"]) for row in labels if row["kind"] == "stop"],
            evaluations=run.evaluations(),
            remembered=_flat(run.about()),
        )

    def steps(self, request: Request) -> Response:
        """Show the figures of the steps as a table."""
        run = self._run(request)
        with run.index.reading() as db:
            query = "SELECT * FROM steps ORDER BY step DESC, evaluating LIMIT 500"
            found = [dict(row) for row in db.execute(query)]
        return self._page(request, "steps.html.j2", run, steps=found)

    def rollouts(self, request: Request) -> Response:
        """List the rollouts that fit."""
        run = self._run(request)
        if (unchanged := self._unchanged(request, run)) is not None:
            return unchanged
        filters = search.Filters.of(request.query_params)
        with run.index.reading() as db:
            found = search.find(db, filters)
            labels = db.execute("SELECT kind, name, count FROM labels ORDER BY kind, count DESC").fetchall()
        return self._page(
            request,
            "rollouts.html.j2",
            run,
            filters=filters,
            found=found,
            snippets=self._snippets(run, found.rollouts, filters.words),
            choices=_choices(labels),
            search=search,
        )

    def rollout(self, request: Request) -> Response:
        """Show one rollout as a conversation."""
        run, place = self._run(request), request.path_params["place"]
        filters = search.Filters.of(request.query_params)
        rollout = read_rollout(run.directory, place)
        with run.index.reading() as db:
            newer, older = search.neighbours(db, filters, place)
        number = rollout.seat.group
        return self._page(
            request,
            "rollout.html.j2",
            run,
            shown=opened(rollout, None if number is None else self._group(run, number), place),
            place=place,
            filters=filters,
            newer=newer,
            older=older,
        )

    def tokens(self, request: Request) -> Response:
        """Show a page of a row's tokens."""
        run, place = self._run(request), request.path_params["place"]
        row, at = _whole(request, "row"), _whole(request, "at")
        if (page := _whole(request, "page")) > 0:
            at = (page - 1) * PAGE
        document = read_document(run.directory, place)
        seat = document["extra"]["atropos_agent"].get("seat") or {}
        group = None if seat.get("group") is None else self._group(run, seat["group"])
        rewards = group.rewards if group is not None and group.state != "working" else None
        shown = token_page(document, run.decode, row=row, at=at, rewards=rewards)
        task = document["extra"]["atropos_agent"]["task"]["id"]
        return self._page(
            request,
            "tokens.html.j2",
            run,
            shown=shown,
            place=place,
            task=task,
            decoded=run.decode is not None,
            size=PAGE,
        )

    def raw(self, request: Request) -> Response:
        """Give a rollout as it is saved, as a file."""
        run, place = self._run(request), request.path_params["place"]
        document = read_document(run.directory, place)
        headers = {"content-disposition": f'attachment; filename="rollout-{place}.json"'}
        return Response(orjson.dumps(document, option=orjson.OPT_INDENT_2), 200, headers, "application/json")

    def by_id(self, request: Request) -> Response:
        """Lead to a rollout by its id."""
        run, name = self._run(request), request.path_params["id"]
        with run.index.reading() as db:
            found = db.execute("SELECT place FROM rollouts WHERE id = ?", (name,)).fetchone()
        if found is None:
            raise NotThere(f"no rollout {name} is indexed in this run yet")
        return RedirectResponse(f"{self._base}/{run.number}/rollouts/{found[0]}")

    def groups(self, request: Request) -> Response:
        """List the groups."""
        run = self._run(request)
        if (unchanged := self._unchanged(request, run)) is not None:
            return unchanged
        state, task = (request.query_params.get(name, "") for name in ("state", "task"))
        page = max(1, _whole(request, "page"))
        found = journal.groups(run.directory, state=state, task=task, page=page)
        standing = self._standing(run)
        return self._page(
            request,
            "groups.html.j2",
            run,
            groups=found,
            state=state,
            task=task,
            page=page,
            more=len(found) == journal.PAGE,
            standing=standing,
        )

    def group(self, request: Request) -> Response:
        """Show a group's members side by side."""
        run, number = self._run(request), request.path_params["number"]
        if (unchanged := self._unchanged(request, run)) is not None:
            return unchanged
        group = self._group(run, number)
        if group is None:
            raise NotThere(f"this run has no group {number}")
        standing = self._standing(run)
        return self._page(
            request,
            "group.html.j2",
            run,
            group=group,
            seats=seats_of(run.directory, group, standing.group_size if standing else None),
        )

    def failures(self, request: Request) -> Response:
        """Show what failed by our fault, and the evidence."""
        run = self._run(request)
        return self._page(request, "failures.html.j2", run, metrics=run.metrics(), evidence=run.failures())

    def compare(self, request: Request) -> Response:
        """Compare two runs task by task."""
        first, second = (self._numbered(_whole(request, name, default)) for name, default in (("a", 0), ("b", 1)))
        kind = request.query_params.get("kind", "")
        with first.index.reading() as one, second.index.reading() as other:
            compared = compare_runs(one, other, {"training": False, "evaluation": True}.get(kind))
        return self._page(
            request, "compare.html.j2", None, first=first, second=second, kind=kind, compared=compared, search=search
        )

    def static(self, request: Request) -> Response:
        """Give a style, a script or a picture."""
        name = request.path_params["name"]
        package = "envs.records" if name == "report.css" else "envs.viewer"
        folder = "templates" if name == "report.css" else "static"
        known = {path.name: path for path in files(package).joinpath(folder).iterdir()}
        kind = _STATIC.get(name.rpartition(".")[2])
        if kind is None or name not in known:
            raise NotThere(f"there is no file {name}")
        return Response(known[name].read_bytes(), 200, {"cache-control": "private, max-age=3600"}, kind)

    # Beneath

    def _page(
        self, request: Request, template: str, run: ShownRun | None, status: int = 200, **values: Any
    ) -> Response:
        self._filling.looked()
        html = self._templates.get_template(template).render(
            base=self._base,
            home=self._base if run is None else f"{self._base}/{run.number}",
            run=run,
            runs=self._runs,
            live=run is not None and goes_on(run.directory),
            coverage=None if run is None else run.index.coverage(),
            seen="" if run is None else _mark(run),
            here=request.url.path.removeprefix(self._base),
            **values,
        )
        return Response(html.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")

    def _wrong(self, request: Request, error: Exception) -> Response:
        said = "there is nothing at this address" if not isinstance(error, ValueError) else str(error)
        return self._page(
            request, "wrong.html.j2", None, 400 if isinstance(error, search.BadFilter) else 404, said=said
        )

    def _unchanged(self, request: Request, run: ShownRun) -> Response | None:
        """Return an empty answer where the page in the browser shows all that is on disk."""
        self._filling.looked()
        return Response(status_code=204) if request.headers.get(_SEEN) == _mark(run) else None

    def _run(self, request: Request) -> ShownRun:
        return self._numbered(request.path_params["run"])

    def _numbered(self, number: int) -> ShownRun:
        if not 0 <= number < len(self._runs):
            raise NotThere(f"there is no run {number}; this page shows {len(self._runs)}")
        return self._runs[number]

    def _standing(self, run: ShownRun) -> journal.Standing | None:
        try:
            return journal.standing(run.directory)
        except RunDirectoryError as error:
            logger.warning("%s", error)
            return None

    def _group(self, run: ShownRun, number: int) -> journal.SavedGroup | None:
        return journal.group(run.directory, number)

    def _snippets(self, run: ShownRun, rows: Sequence[sqlite3.Row], words: Sequence[str]) -> Mapping[int, Any]:
        if not words:
            return {}
        found = {}
        for row in rows:
            try:
                found[row["place"]] = snippet(read_document(run.directory, row["place"]), words)
            except (NoRollout, KeyError, TypeError, ValueError):
                continue
        return found


def _mark(run: ShownRun) -> str:
    """Return what changes when anything does that the page shows."""
    names = (
        "metrics.json",
        "state.db",
        "state.db-wal",
        TIMELINE,
        "quarantined.jsonl",
        "rollouts.index",
        "rollouts.index-wal",
    )
    paths: list[Path] = [run.directory / name for name in names] + [path for _, path in parts(run.directory)]
    seen = []
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        seen.append(f"{path.name} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


def _whole(request: Request, name: str, default: int = 0) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isdecimal() and len(text) < 16):
        raise search.BadFilter(f"{name} {text!r} is no number")
    return int(text)


def _totals(sums: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sums[0].keys() if sums else ()
    return {name: sum(line[name] for line in sums) for name in names if name not in ("step", "last")}


def _choices(labels: Sequence[sqlite3.Row]) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {kind: [] for kind in ("tag", "tool", "sign", "trouble", "stop")}
    for row in labels:
        if row["kind"] in found and len(found[row["kind"]]) < 100:
            found[row["kind"]].append((row["name"], row["count"]))
    return found


def _flat(about: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return what a run remembers as lines of a table."""
    found = []
    for name, value in about.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value if isinstance(value, str) else orjson.dumps(value).decode()))
    return found


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    raise AssertionError
