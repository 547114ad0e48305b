"""Answer programs in JSON: the page's figures, groups, tasks and rollouts by filter, in bounded pages.

Every answer names the `page` after it in `next`, None at the end, and in `indexed` the share of the rollouts that can
be found so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from envs.records.plain import plain
from envs.runs import journal, search
from envs.runs.reader import goes_on, line_of
from envs.viewer.frame import Frame, number_in
from envs.viewer.runs import ShownRun

SIZE = 50
"""Lines of an answer, unless `size` says otherwise."""
MOST = 500
"""Lines of an answer, at most."""
_LISTS = frozenset({"engine", "tool"})
"""Metrics that are samples of a thousand."""

Answer = Callable[["ApiRequest"], dict[str, Any]]


class ApiRequest:
    """A request for a page about one run. filters: those of the query."""

    def __init__(self, request: Request, run: ShownRun) -> None:
        self.run = run
        self.size = min(MOST, number_in(request, "size", SIZE)) or SIZE
        self.page = max(1, number_in(request, "page", 1))
        self.filters = {name: value for name, value in request.query_params.items() if name not in ("run", "size")}

    def take(self, *names: str) -> dict[str, str]:
        """Return filters of these names. Raises BadFilter for any other."""
        if wrong := [name for name in self.filters if name not in (*names, "page")]:
            raise search.BadFilter(f"there is no filter {wrong[0]!r} here; there are {', '.join(names) or 'none'}")
        return {name: value for name, value in self.filters.items() if name != "page"}

    def page_of(self, name: str, lines: Sequence[Any]) -> dict[str, Any]:
        """Return a page of lines, with the number of the next page."""
        return {name: lines, "page": self.page, "next": self.page + 1 if len(lines) == self.size else None}


class Api:
    """Answers requests of programs. They ask about run 0, or about `?run=N`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        answers = (rollouts, groups, tasks, metrics, resources, failures)
        self.routes: list[BaseRoute] = [Route("/api/runs", self.runs)]
        self.routes += [Route(f"/api/{answer.__name__}", self._endpoint(answer)) for answer in answers]

    def runs(self, request: Request) -> Response:
        """List the runs."""
        about = [_about(run) for run in self._frame.runs]
        return _json({"runs": about})

    def _endpoint(self, answer: Answer) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            run = self._frame.numbered(number_in(request, "run"))
            self._frame.record_visit()
            coverage = run.index.coverage()
            coverage_fields = {"run": run.number, "indexed": coverage.share, "damaged": coverage.damaged}
            return _json({**coverage_fields, **answer(ApiRequest(request, run))})

        return endpoint


def rollouts(request: ApiRequest) -> dict[str, Any]:
    """List the matching rollouts. `place` leads to the whole one: /RUN/rollouts/PLACE/raw."""
    filters = search.Filters.parse(request.filters)
    with request.run.index.reading() as db:
        found = search.find(db, filters, request.size)
    counts = {"count": min(found.count, search.COUNTED), "more": found.count > search.COUNTED}
    return {**request.page_of("rollouts", [line_of(row) for row in found.rollouts]), **counts}


def groups(request: ApiRequest) -> dict[str, Any]:
    """List the matching groups, newest first."""
    filters = request.take("state", "task", "resource")
    found = journal.groups(request.run.directory, **filters, page=request.page, size=request.size)
    lines = [{**asdict(group), "rewards": group.rewards} for group in found]
    return request.page_of("groups", lines)


def tasks(request: ApiRequest) -> dict[str, Any]:
    """List the tasks with the figures of their rollouts."""
    filters = request.take("kind")
    with request.run.index.reading() as db:
        lines = search.task_lines(db, filters.get("kind", ""), size=request.size, page=request.page)
    return request.page_of("tasks", lines)


def metrics(request: ApiRequest) -> dict[str, Any]:
    """Give the figures of the matching rollouts, in a line for each `by`, and the counters of the whole run."""
    by = request.filters.pop("by", "")
    with request.run.index.reading() as db:
        lines = search.figures(db, search.Filters.parse(request.filters), by, size=request.size)
    whole = request.run.metrics()
    counted = orjson.loads(whole.to_json()) if whole is not None else {}
    counters = {name: value for name, value in counted.items() if name not in _LISTS}
    scalars = whole.scalars() if whole is not None else {}
    return {**request.page_of("figures", lines), "counters": counters, "scalars": scalars}


def resources(request: ApiRequest) -> dict[str, Any]:
    """List the versions of the run's texts, newest first."""
    request.take()
    first = request.size * (request.page - 1)
    return request.page_of("resources", request.run.resources.history()[::-1][first : first + request.size])


def failures(request: ApiRequest) -> dict[str, Any]:
    """Give the evidence of quarantined tasks, newest first."""
    request.take()
    return {"failures": request.run.failures()}


def _about(run: ShownRun) -> dict[str, Any]:
    starts = len(run.about().get("starts", ()))
    return {"run": run.number, "name": run.name, "live": goes_on(run.directory), "starts": starts}


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(plain(value)), status, media_type="application/json")


def refusal(error: Exception, status: int) -> Response:
    """Return the answer to a request that can't be answered."""
    return _json({"error": str(error) if isinstance(error, ValueError) else "there is nothing at this address"}, status)
