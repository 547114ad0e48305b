"""Make the pages about a run's rollouts: the matching ones, one as a conversation, its tokens, its saved form."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from envs.delivery.estimators import USUAL
from envs.running.database import RunDirectoryError
from envs.runs import journal, search
from envs.runs.facts import KINDS
from envs.runs.reading import NoRollout, read_document, read_rollout, snippet
from envs.viewer.frame import Frame, NotFoundError, number_in
from envs.viewer.rollout_view import build_view
from envs.viewer.runs import ShownRun
from envs.viewer.tokens import PAGE, NoRow, token_page

logger = logging.getLogger(__name__)


class RolloutPages:
    """Answers requests about the rollouts of one of the runs."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.routes = [
            Route("/rollouts", self.rollouts),
            Route("/rollouts/{place:int}", self.rollout),
            Route("/rollouts/{place:int}/tokens", self.tokens),
            Route("/rollouts/{place:int}/raw", self.raw),
            Route("/rollout/{id}", self.by_id),
        ]

    def rollouts(self, request: Request) -> Response:
        """List the matching rollouts."""
        run = self._frame.run(request)
        if (unchanged := self._frame.unchanged(request, run)) is not None:
            return unchanged
        filters = search.Filters.of(request.query_params)
        with run.index.reading() as db:
            found = search.find(db, filters)
            labels = db.execute("SELECT kind, name, count FROM labels ORDER BY kind, count DESC").fetchall()
        return self._frame.page(
            request,
            "rollouts.html.j2",
            run,
            filters=filters,
            found=found,
            snippets=_snippets(run, found.rollouts, filters.words),
            choices=_choices(labels),
            search=search,
        )

    def rollout(self, request: Request) -> Response:
        """Show one rollout as a conversation."""
        run, place = self._frame.run(request), request.path_params["place"]
        filters = search.Filters.of(request.query_params)
        with run.index.reading() as db:
            newer, older = search.neighbours(db, filters, place)
        with _raise_no_rollout(place):
            rollout = read_rollout(run.directory, place)
            number = rollout.seat.group
            return self._frame.page(
                request,
                "rollout.html.j2",
                run,
                shown=build_view(rollout, None if number is None else journal.group(run.directory, number), place),
                place=place,
                filters=filters,
                newer=newer,
                older=older,
            )

    def tokens(self, request: Request) -> Response:
        """Show a page of a row's tokens."""
        run, place = self._frame.run(request), request.path_params["place"]
        row, at = number_in(request, "row"), number_in(request, "at")
        if (page := number_in(request, "page")) > 0:
            at = (page - 1) * PAGE
        with _raise_no_rollout(place):
            document = read_document(run.directory, place)
            seat = document["extra"]["atropos_agent"].get("seat") or {}
            group = None if seat.get("group") is None else journal.group(run.directory, seat["group"])
            rewards = group.rewards if group is not None and group.state != "working" else None
            estimator = USUAL if group is None else group.estimator
            return self._frame.page(
                request,
                "tokens.html.j2",
                run,
                shown=token_page(document, run.decode, row=row, at=at, rewards=rewards, estimator=estimator),
                place=place,
                task=document["extra"]["atropos_agent"]["task"]["id"],
                decoded=run.decode is not None,
                size=PAGE,
            )

    def raw(self, request: Request) -> Response:
        """Give a rollout as it is saved, as a file."""
        run, place = self._frame.run(request), request.path_params["place"]
        document = read_document(run.directory, place)
        headers = {"content-disposition": f'attachment; filename="rollout-{place}.json"'}
        return Response(orjson.dumps(document, option=orjson.OPT_INDENT_2), 200, headers, "application/json")

    def by_id(self, request: Request) -> Response:
        """Lead to a rollout by its id."""
        run, name = self._frame.run(request), request.path_params["id"]
        with run.index.reading() as db:
            found = db.execute("SELECT place FROM rollouts WHERE id = ?", (name,)).fetchone()
        if found is None:
            raise NotFoundError(f"no rollout {name} is indexed in this run yet")
        return RedirectResponse(f"{self._frame.base}/{run.number}/rollouts/{found[0]}")


@contextmanager
def _raise_no_rollout(place: int) -> Iterator[None]:
    """Raise NoRollout for anything unshowable at a place: its content may be arbitrary."""
    try:
        yield
    except (NoRollout, NoRow, RunDirectoryError):
        raise
    except Exception as error:  # what is saved may be anything
        logger.warning("the rollout at byte %d can't be shown", place, exc_info=True)
        raise NoRollout(
            f"what is saved at byte {place} can't be shown, since a value is not what it should be "
            f"({type(error).__name__}: {error}); .../rollouts/{place}/raw gives it as it is"
        ) from error


def _snippets(run: ShownRun, rows: Sequence[sqlite3.Row], words: Sequence[str]) -> Mapping[int, Any]:
    """Return the places of words in rollouts, by the rollouts' places."""
    if not words:
        return {}
    found = {}
    for row in rows:
        try:
            found[row["place"]] = snippet(read_document(run.directory, row["place"]), words)
        except (NoRollout, KeyError, TypeError, ValueError):
            continue
    return found


def _choices(labels: Sequence[sqlite3.Row]) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {kind: [] for kind in (*KINDS, "stop")}
    for row in labels:
        if row["kind"] in found and len(found[row["kind"]]) < 100:
            found[row["kind"]].append((row["name"], row["count"]))
    return found
