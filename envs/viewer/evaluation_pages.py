"""The page about a run's evaluations."""

from __future__ import annotations

import logging
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from envs.runs.reader import step_of
from envs.viewer import evaluations
from envs.viewer.evaluations import Evaluation
from envs.viewer.frame import Frame, NotFoundError
from envs.viewer.runs import ShownRun

logger = logging.getLogger(__name__)


class EvaluationPages:
    """Answers requests about one of the runs."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.routes = [Route("/evaluations", self.evaluations)]

    def evaluations(self, request: Request) -> Response:
        """Show the evaluations: all of them over the steps, and one with its attempts, compared with another."""
        run = self._frame.run(request)
        if (unchanged := self._frame.unchanged(request, run)) is not None:
            return unchanged
        found = self._evaluations_of(run)
        shown = _find_evaluation(request, "name", found, found[-1] if found else None)
        before = [one for one in found[: found.index(shown)] if one.over] if shown is not None else []
        earlier = _find_evaluation(request, "against", found, before[-1] if before else None)
        compared = None
        if shown is not None and earlier is not None and earlier is not shown:
            shown, compared = evaluations.compare_with(shown, earlier)
        return self._frame.page(
            request,
            "evaluations.html.j2",
            run,
            evaluations=found,
            chart=evaluations.curve(found),
            one=shown,
            earlier=earlier if compared is not None else None,
            compared=compared,
        )

    def _evaluations_of(self, run: ShownRun) -> list[Evaluation]:
        """Return a run's evaluations by step: those with a file, and those that go on."""
        found: list[Evaluation] = []
        files = dict(run.evaluations())
        own = {f"eval-{step}" for step in _steps(run)}
        for name in sorted(files.keys() | own, key=lambda name: (step_of(name), name)):
            holder, step = run, step_of(name)
            if name in files and name not in own and (other := self._evaluation_run(run, name)) is not None:
                holder, step = other, 0
            try:
                saved = evaluations.parse_evaluation(name, files[name]) if name in files else None
            except (KeyError, TypeError, ValueError) as error:
                logger.warning("%s of %s can't be shown: %r", name, run.directory, error)
                continue
            with holder.index.reading() as db:
                attempts = evaluations.attempts_in(db, holder.number, step)
            if (one := evaluations.with_attempts(saved, attempts, name)) is not None:
                found.append(one)
        return found

    def _evaluation_run(self, run: ShownRun, name: str) -> ShownRun | None:
        """Return the shown run of an evaluation in a directory of its own, as `learn` makes them."""
        wanted = Path(run.directory).resolve().parent / name
        return next((one for one in self._frame.runs if one.directory.resolve() == wanted), None)


def _steps(run: ShownRun) -> list[int]:
    with run.index.reading() as db:
        return [step for (step,) in db.execute("SELECT step FROM steps WHERE evaluating ORDER BY step")]


def _find_evaluation(
    request: Request, name: str, found: list[Evaluation], usual: Evaluation | None
) -> Evaluation | None:
    """Return the evaluation that a query names. Raises NotFoundError."""
    wanted = request.query_params.get(name)
    if not wanted:
        return usual
    for one in found:
        if one.name == wanted:
            return one
    raise NotFoundError(f"this run has no evaluation {wanted!r}")
