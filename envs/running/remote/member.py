"""A worker process's place on a node: it tells whether rollouts may be made there, and replaces a lost process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from envs.running.failures import attribute_errors
from envs.running.remote.live import LiveWorker
from envs.running.remote.messages import StartMessage, WorkerGoneError, WorkerUnreachableError
from envs.types import Failure, InfraError
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

FIRST_REST_S, LONGEST_REST_S = 2.0, 300.0
"""How long a worker rests after a failure, in seconds; twice as long with each in a row."""
AGAIN_S, LONGEST_AGAIN_S = 1.0, 60.0
"""Pause before a process follows a lost one, in seconds; twice as long with each that was never opened."""


class WorkerSlot:
    """One place. `keep_running` runs beside it.

    live: the process for new rollouts; None without one. active: rollouts that it makes. failure:
    why it can't be opened; None when it can, or when this isn't known. changed: is called when any of this changes.
    lost: gets the number of rollouts lost.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], Awaitable[LiveWorker]],
        opening: StartMessage,
        changed: Callable[[], None],
        lost: Callable[[int], None],
    ) -> None:
        self.name = name
        self.live: LiveWorker | None = None
        self.active = 0
        self.failure: InfraError | None = None
        self._start = start
        self._opening = opening
        self._changed, self._lost = changed, lost
        self._failures, self._rests_until = 0, 0.0

    @property
    def is_fit(self) -> bool:
        """Tell whether it may be given rollouts, while others may be. After a failure it is given one at a time, until
        one succeeds: a node that fails at once would else get them all."""
        return self._failures == 0 or (self.active == 0 and time.monotonic() >= self._rests_until)

    @property
    def state(self) -> str:
        """Return how it stands, in words."""
        if self.live is not None:
            return f"makes {self.active}" if self.is_fit else f"rests after {self._failures} failures"
        return "is starting" if self.failure is None else f"can't be opened ({self.failure})"

    def note_success(self) -> None:
        """Note that it made a rollout."""
        self._failures = 0

    def note_failure(self, error: InfraError) -> None:
        """Note a failure. One of the task is not the worker's."""
        if error.kind is Failure.TASK:
            return
        self._failures += 1
        rest_s = min(LONGEST_REST_S, FIRST_REST_S * 2.0 ** min(self._failures - 1, 10))
        self._rests_until = time.monotonic() + rest_s

    async def keep_running(self) -> None:
        """Keep a process there, for ever."""
        failures = 0
        while True:
            try:
                with attribute_errors(WorkerGoneError, WorkerUnreachableError):
                    live = await self._start()
                    try:
                        await self._serve(live)
                    finally:
                        self._give_up(live)
                        await finish(live.kill())
            except (WorkerGoneError, WorkerUnreachableError) as error:
                logger.warning("the worker on %s is lost: %s", self.name, error)
            except InfraError as error:
                before, self.failure = self.failure, error
                level = logging.DEBUG if str(before) == str(self.failure) else logging.WARNING
                logger.log(level, "the worker on %s can't be used: %s", self.name, self.failure)
            self._changed()
            failures = 0 if self._worked else failures + 1
            self._worked = False
            await asyncio.sleep(min(LONGEST_AGAIN_S, AGAIN_S * 2.0 ** min(failures, 10)))

    async def close(self) -> None:
        """Let the process end in order."""
        if self.live is not None:
            await self.live.close()

    _worked = False
    """Whether the last process was ever opened."""

    async def _serve(self, live: LiveWorker) -> None:
        """Open the process, and take in its messages until it is lost."""
        listening = asyncio.create_task(live.listen())  # also to what it logs while it opens
        opening = asyncio.create_task(live.open(self._opening))
        try:
            await asyncio.wait({listening, opening}, return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():
                opening.result()
                self.live, self.failure, self._worked = live, None, True
                self._failures = 0
                logger.info("the worker on %s is ready", self.name)
                self._changed()
            await listening
        finally:
            listening.cancel()
            opening.cancel()
            await asyncio.gather(listening, opening, return_exceptions=True)

    def _give_up(self, live: LiveWorker) -> None:
        self.live = None
        if rollouts := live.fail_rollouts():
            logger.warning("%d rollouts were lost with the worker on %s; they are made elsewhere", rollouts, self.name)
            self._lost(rollouts)
        self._changed()
