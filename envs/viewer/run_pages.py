"""The pages about a run as a whole: at a glance, its steps, its groups, its failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from envs.records.timeline import read_timeline
from envs.runs import journal
from envs.viewer import charts
from envs.viewer.frame import Frame, NotFoundError, number_in, standing_of
from envs.viewer.members import seats_of

_VERSIONS = 20
"""Versions of resources on the overview, the newest."""


class RunPages:
    """Answers requests about one of the runs."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.routes = [
            Route("/", self.overview),
            Route("/steps", self.steps),
            Route("/groups", self.groups),
            Route("/groups/{number:int}", self.group),
            Route("/failures", self.failures),
        ]

    def overview(self, request: Request) -> Response:
        """Show a run at a glance."""
        run = self._frame.run(request)
        if (unchanged := self._frame.unchanged(request, run)) is not None:
            return unchanged
        metrics, lines = run.metrics(), read_timeline(run.directory)
        with run.index.reading() as db:
            training, evaluations = (charts.step_sums(db, evaluating=kind) for kind in (False, True))
            pools = charts.pool_charts(db)
            labels = db.execute("SELECT kind, name, count FROM labels ORDER BY count DESC").fetchall()
        sums = training or evaluations
        return self._frame.page(
            request,
            "overview.html.j2",
            run,
            standing=standing_of(run),
            metrics=metrics,
            totals=_totals(sums),
            evaluated=_totals(evaluations) if training else None,
            charts=[
                chart
                for chart in (*charts.step_charts(sums, metrics, run.trainer()), *pools, *charts.time_charts(lines))
                if chart.has_line
            ],
            changes=charts.changes(lines)[:12],
            signs=[(row["name"], row["count"]) for row in labels if row["kind"] == "sign"],
            stops=[(row["name"], row["count"]) for row in labels if row["kind"] == "stop"],
            evaluations=run.evaluations(),
            resources=run.resources.history()[: -_VERSIONS - 1 : -1],
            remembered=_remembered(run.about()),
        )

    def steps(self, request: Request) -> Response:
        """Show the figures of the steps as a table."""
        run = self._frame.run(request)
        with run.index.reading() as db:
            query = "SELECT * FROM steps ORDER BY step DESC, evaluating LIMIT 500"
            found = [dict(row) for row in db.execute(query)]
        return self._frame.page(request, "steps.html.j2", run, steps=found)

    def groups(self, request: Request) -> Response:
        """List the groups."""
        run = self._frame.run(request)
        if (unchanged := self._frame.unchanged(request, run)) is not None:
            return unchanged
        state, task, resource = (request.query_params.get(name, "") for name in ("state", "task", "resource"))
        page = max(1, number_in(request, "page"))
        found = journal.groups(run.directory, state=state, task=task, resource=resource, page=page)
        standing = standing_of(run)
        return self._frame.page(
            request,
            "groups.html.j2",
            run,
            groups=found,
            state=state,
            task=task,
            resource=resource,
            page=page,
            more=len(found) == journal.PAGE,
            standing=standing,
        )

    def group(self, request: Request) -> Response:
        """Show a group's members side by side."""
        run, number = self._frame.run(request), request.path_params["number"]
        if (unchanged := self._frame.unchanged(request, run)) is not None:
            return unchanged
        group = journal.group(run.directory, number)
        if group is None:
            raise NotFoundError(f"this run has no group {number}")
        standing = standing_of(run)
        seats = seats_of(run.directory, group, standing.group_size if standing else None)
        return self._frame.page(
            request,
            "group.html.j2",
            run,
            group=group,
            last=sum(standing.groups.values()) - 1 if standing else number,
            seats=seats,
            opening=next((seat.detail.opening for seat in seats if seat.detail is not None), ()),
        )

    def failures(self, request: Request) -> Response:
        """Show infrastructure failures, and the evidence."""
        run = self._frame.run(request)
        return self._frame.page(request, "failures.html.j2", run, metrics=run.metrics(), evidence=run.failures())


def _totals(sums: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sums[0].keys() if sums else ()
    return {name: sum(line[name] for line in sums) for name in names if name not in ("step", "last")}


def _remembered(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a run's starts as lines of a table: the last one whole, of the others time and command."""
    *before, last = about.get("starts") or [{}]
    starts = {
        f"start {number + 1}": [start.get("at"), *start.get("arguments", ())] for number, start in enumerate(before)
    }
    rest = {name: value for name, value in about.items() if name != "starts"}
    return _flat({**rest, **starts, **last})


def _flat(about: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return a run's start as lines of a table."""
    found = []
    for name, value in about.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", _text(value)))
    return found


def _text(value: Any) -> str:
    """Return a value for people: a list of texts as words, anything else as JSON."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()
