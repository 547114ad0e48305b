"""What carries calls to worker processes, as the driver sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Gone(Exception):
    """The worker process, or its machine, is no more."""


class Unreachable(Exception):
    """It can't be reached now; whether it has been told what it was to be told isn't known."""


class Link(Protocol):
    """The way to one worker process."""

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `WorkerProcess`. Raises Gone and Unreachable."""
        ...

    async def kill(self) -> None:
        """End the process at once, if it lives."""
        ...


class Cluster(Protocol):
    """The machines on which worker processes may be started. Used as `async with`."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def nodes(self) -> Sequence[str]:
        """Return the names of those that can be used now."""
        ...

    async def start(self, node: str) -> Link:
        """Start a worker process there. It waits while there is no room. Raises Gone."""
        ...
