"""Stopping a run in good order, as SIGTERM and Ctrl-C ask for."""

from __future__ import annotations

import asyncio


class Stopping:
    """Whether a run was asked to stop."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.working = False
        """Whether groups are being worked on, which the run ends by itself."""

    @property
    def asked(self) -> bool:
        """Whether nothing new is to be started."""
        return self._asked.is_set()

    def ask(self) -> bool:
        """Stop: nothing new is started, and what runs has `shutdown_s` to finish. Returns False when there is nothing
        to wait for, or the second time: then cancel the run."""
        again = self.asked
        self._asked.set()
        return self.working and not again
