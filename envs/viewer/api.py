"""Answer programs in JSON: the page's figures, groups, tasks and rollouts by filter, in bounded pages.

Every answer names the `page` behind it in `next`, None at the end, and in `indexed` the share of the rollouts that can
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

Answer = Callable[["Asked"], dict[str, Any]]


class Asked:
    """A request for a page about one run. given: the filters."""

    def __init__(self, request: Request, run: ShownRun) -> None:
        self.run = run
        self.size = min(MOST, number_in(request, "size", SIZE)) or SIZE
        self.page = max(1, number_in(request, "page", 1))
        self.given = {name: value for name, value in request.query_params.items() if name not in ("run", "size")}

    def take(self, *names: str) -> dict[str, str]:
        """Return filters of these names. Raises BadFilter for any other."""
        if wrong := [name for name in self.given if name not in (*names, "page")]:
            raise search.BadFilter(f"there is no filter {wrong[0]!r} here; there are {', '.join(names) or 'none'}")
        return {name: value for name, value in self.given.items() if name != "page"}

    def listed(self, name: str, lines: Sequence[Any]) -> dict[str, Any]:
        """Return a page of lines, with the number of the next page."""
        return {name: lines, "page": self.page, "next": self.page + 1 if len(lines) == self.size else None}


class Api:
    """Answers requests of programs. They ask about run 0, or about `?run=N`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        answers = (rollouts, groups, tasks, metrics, resources, failures)
        self.routes: list[BaseRoute] = [Route("/api/runs", self.runs)]
        self.routes += [Route(f"/api/{answer.__name__}", self._answering(answer)) for answer in answers]

    def runs(self, request: Request) -> Response:
        """List the runs."""
        about = [
            {"run": run.number, "name": run.name, "live": goes_on(run.directory), "starts": len(_starts(run))}
            for run in self._frame.runs
        ]
        return _json({"runs": about})

    def _answering(self, answer: Answer) -> Callable[[Request], Response]:
        def answering(request: Request) -> Response:
            run = self._frame.numbered(number_in(request, "run"))
            self._frame.looked()
            coverage = run.index.coverage()
            told = {"run": run.number, "indexed": coverage.share, "damaged": coverage.damaged}
            return _json({**told, **answer(Asked(request, run))})

        return answering


def rollouts(asked: Asked) -> dict[str, Any]:
    """List the matching rollouts. `place` leads to the whole one: /RUN/rollouts/PLACE/raw."""
    filters = search.Filters.asked(asked.given)
    with asked.run.index.reading() as db:
        found = search.find(db, filters, asked.size)
    told = {"count": min(found.count, search.COUNTED), "more": found.count > search.COUNTED}
    return {**asked.listed("rollouts", [line_of(row) for row in found.rollouts]), **told}


def groups(asked: Asked) -> dict[str, Any]:
    """List the matching groups, newest first."""
    filters = asked.take("state", "task", "resource")
    found = journal.groups(asked.run.directory, **filters, page=asked.page, size=asked.size)
    lines = [{**asdict(group), "rewards": group.rewards} for group in found]
    return asked.listed("groups", lines)


def tasks(asked: Asked) -> dict[str, Any]:
    """List the tasks with the figures of their rollouts."""
    filters = asked.take("kind")
    with asked.run.index.reading() as db:
        lines = search.task_lines(db, filters.get("kind", ""), size=asked.size, page=asked.page)
    return asked.listed("tasks", lines)


def metrics(asked: Asked) -> dict[str, Any]:
    """Give the figures of the matching rollouts, in a line for each `by`, and the counters of the whole run."""
    by = asked.given.pop("by", "")
    with asked.run.index.reading() as db:
        lines = search.figures(db, search.Filters.asked(asked.given), by, size=asked.size)
    whole = asked.run.metrics()
    counted = orjson.loads(whole.to_json()) if whole is not None else {}
    counters = {name: value for name, value in counted.items() if name not in _LISTS}
    scalars = whole.scalars() if whole is not None else {}
    return {**asked.listed("figures", lines), "counters": counters, "scalars": scalars}


def resources(asked: Asked) -> dict[str, Any]:
    """List the versions of the run's texts, newest first."""
    asked.take()
    first = asked.size * (asked.page - 1)
    return asked.listed("resources", asked.run.resources.history()[::-1][first : first + asked.size])


def failures(asked: Asked) -> dict[str, Any]:
    """Give the evidence of quarantined tasks, newest first."""
    asked.take()
    return {"failures": asked.run.failures()}


def _starts(run: ShownRun) -> Sequence[Any]:
    found = run.about().get("starts")
    return found if isinstance(found, list) else ()


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(plain(value)), status, media_type="application/json")


def refusal(error: Exception, status: int) -> Response:
    """Return the answer to a request that can't be answered."""
    return _json({"error": str(error) if isinstance(error, ValueError) else "there is nothing at this address"}, status)
