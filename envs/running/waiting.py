"""Wait at the start for the daemons and servers that a run needs, so no outside fault ends it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from atropos_agent.engines.errors import ModelNotServed, NotThisServer
from atropos_agent.types import EngineError
from sandboxes.base import DaemonError, SandboxTimeout

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 1800.0
"""Longest wait, in seconds: as long as a request waits for an inference server."""
REMIND_S = 15.0
"""Seconds between two messages about the wait."""
LOOK_S = 1.0
"""Seconds between two looks at an inference server during a wait for it."""
LOADED_AFTER = 60
"""Looks at a server after its start before it counts as one without the model."""
AWAY = (ConnectionError, DaemonError, SandboxTimeout)
"""Errors by which something is absent now. `DaemonUnavailable` is a ConnectionError, too."""


async def retry_until_reachable(reach: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `reach`. It is called again while it finds something absent, for `PATIENCE_S` at most;
    its exception then, and any other at once, is raised. Its message holds the remedy."""
    began, pause_s, reminded = time.monotonic(), 1.0, 0.0
    while True:
        try:
            return await reach()
        except AWAY as error:
            now = time.monotonic()
            if now - began + pause_s > PATIENCE_S:
                raise
            if not reminded or now - reminded >= REMIND_S:
                reminded = now
                logger.warning("%s Waiting for it, up to %.0f minutes", error, PATIENCE_S / 60)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 8.0)


async def retry_until_served(look: Callable[[], Awaitable[None]]) -> None:
    """Look at an inference server, waiting until it answers.

    Raises ModelNotServed and NotThisServer; for a server just started, after `LOADED_AFTER` more looks."""
    looks, came_up = 0, None
    while True:
        try:
            await look()
            return
        except EngineError as error:
            if isinstance(error, ModelNotServed | NotThisServer):
                came_up = looks if came_up is None else came_up
                if came_up == 0 or looks - came_up >= LOADED_AFTER:
                    raise
            if looks % 15 == 0:
                logger.warning("%s; waiting for it", error)
        looks += 1
        await asyncio.sleep(LOOK_S)
