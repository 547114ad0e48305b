"""Answer the page's addresses. Everything is read at the request."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from envs.running.database import RunDirectoryError
from envs.runs import search
from envs.runs.reader import goes_on
from envs.runs.reading import NoRollout
from envs.viewer.api import Api, refusal
from envs.viewer.comparing import compare_runs
from envs.viewer.evaluation_pages import EvaluationPages
from envs.viewer.filling import Filling
from envs.viewer.frame import Frame, NotFoundError, number_in, standing_of
from envs.viewer.policy import PolicyMiddleware
from envs.viewer.rollout_pages import RolloutPages
from envs.viewer.run_pages import RunPages
from envs.viewer.runs import ShownRun, pair_of
from envs.viewer.tokens import NoRow

_OF_A_RUN = (RunPages, EvaluationPages, RolloutPages)
_STATIC = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


class Pages:
    """Answers requests about some runs. key: the beginning of addresses. roots: folders of runs, of which later ones
    are shown as well."""

    def __init__(self, runs: Sequence[ShownRun], filling: Filling, key: str, roots: Sequence[Path] = ()) -> None:
        self._frame = Frame(runs, filling, f"/{key}", roots)

    def app(self) -> Starlette:
        """Return the application."""
        inside = [
            Route("/", self.start),
            Route("/compare", self.compare),
            Route("/static/{name}", self.static),
            *Api(self._frame).routes,
            Mount("/{run:int}", routes=[route for pages in _OF_A_RUN for route in pages(self._frame).routes]),
        ]
        # Numbers in addresses may be larger than any of SQLite's.
        kinds = (NotFoundError, NoRollout, NoRow, search.BadFilter, RunDirectoryError, OverflowError, 404)
        wrong = {kind: self._error_page for kind in kinds}
        return Starlette(
            routes=[Mount(self._frame.base, routes=inside)],
            middleware=[Middleware(PolicyMiddleware)],
            exception_handlers=wrong,
        )

    def start(self, request: Request) -> Response:
        """List the runs; with a single one, lead to it."""
        self._frame.find_new_runs()
        if len(self._frame.runs) == 1:
            return RedirectResponse(f"{self._frame.base}/0/")
        standings = [(run, standing_of(run), run.index.coverage(), goes_on(run.directory)) for run in self._frame.runs]
        return self._frame.page(request, "runs.html.j2", None, standings=standings)

    def compare(self, request: Request) -> Response:
        """Compare two runs task by task."""
        usual = pair_of(self._frame.runs) if len(self._frame.runs) > 1 else (0, 0)
        first, second = (
            self._frame.numbered(number_in(request, name, number)) for name, number in zip("ab", usual, strict=True)
        )
        kind = request.query_params.get("kind", "")
        with first.index.reading() as one, second.index.reading() as other:
            compared = compare_runs(one, other, {"training": False, "evaluation": True}.get(kind))
        return self._frame.page(
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
            raise NotFoundError(f"there is no file {name}")
        return Response(known[name].read_bytes(), 200, {"cache-control": "private, max-age=3600"}, kind)

    def _error_page(self, request: Request, error: Exception) -> Response:
        status = 400 if isinstance(error, search.BadFilter) else 404
        if request.url.path.startswith(f"{self._frame.base}/api/"):
            return refusal(error, status)
        message = "there is nothing at this address" if not isinstance(error, ValueError) else str(error)
        return self._frame.page(request, "wrong.html.j2", None, status, message=message)
