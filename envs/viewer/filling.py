"""Fill the index in the background: only while somebody looks, and slowly beside a live run."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Sequence

from envs.runs.index import Index
from envs.runs.reader import goes_on

logger = logging.getLogger(__name__)

LOOKED_S = 30.0
"""Seconds after a request that count as looking."""
SHARE = 0.005
"""Share of a core for indexing beside a live run."""
STRETCH_LIVE = 2**18
STRETCH_OVER = 2**21
PAUSE_S = 2.0
"""Between two looks for new rollouts, in seconds."""


class Filling:
    """Fills indexes in a thread of its own. Used as `with`."""

    def __init__(self, indexes: Sequence[Index]) -> None:
        self._indexes = list(indexes)
        self._visited = threading.Event()
        self._last = 0.0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="index", daemon=True)

    def __enter__(self) -> Filling:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.set()
        self._visited.set()
        self._thread.join()

    def add(self, index: Index) -> None:
        """Fill one more index."""
        self._indexes.append(index)

    def record_visit(self) -> None:
        """Record that a user looks at the page."""
        self._last = time.monotonic()
        self._visited.set()

    def _fill(self) -> None:
        while not self._ends.is_set():
            if time.monotonic() - self._last > LOOKED_S:
                self._visited.clear()
                self._visited.wait()
                continue
            pauses = [self._advance(index) for index in tuple(self._indexes)]
            self._ends.wait(min(pauses, default=PAUSE_S))

    def _advance(self, index: Index) -> float:
        """Index a stretch. Returns the seconds to wait before the next."""
        live = goes_on(index.directory)
        begun = time.thread_time()
        try:
            found = index.advance(STRETCH_LIVE if live else STRETCH_OVER)
        except (sqlite3.Error, OSError) as error:
            logger.debug("%s is not indexed now: %s", index.directory, error)
            return PAUSE_S
        if not found:
            return PAUSE_S
        return (time.thread_time() - begun) / SHARE if live else 0.01
