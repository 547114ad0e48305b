"""One Docker host of a fleet: its open sandboxes, whether it can be used, and how it comes back."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

from sandboxes.base import (
    DaemonError,
    DaemonUnavailable,
    SandboxDied,
    SandboxEnded,
    SandboxError,
    SandboxSpec,
    SandboxTimeout,
    StorageFull,
)
from sandboxes.docker.backend import DockerBackend
from sandboxes.docker.daemon.client import daemon_errors
from sandboxes.docker.daemon.reap import remove_owned
from sandboxes.fleet.host import Host
from sandboxes.owner import Owner
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

PROBE_S = 5.0
"""Between two looks whether a host answers, in seconds."""
ANSWER_S = 10.0
"""How long it may take over its answer, in seconds."""
SLOW_S = 2.0
"""How long it may take over it before it gets no new sandboxes until it has answered, in seconds."""
MISSED = 3
"""Looks without an answer before a host counts as lost."""
MAX_FAILURES = 3
"""Failures in a row before a host rests; one is enough if its storage is full."""
FIRST_REST_S, LONGEST_REST_S = 10.0, 300.0
"""How long it then gets no new sandboxes, in seconds; twice as long each time."""
REMIND_S = 300.0
"""How often it is said why a lost host can't be reached, in seconds."""
OPEN_S = 120.0
"""How long it may take to get in touch with a host, in seconds."""


_HOSTS = (DaemonUnavailable, DaemonError, SandboxTimeout, StorageFull, SandboxDied)
"""Failures with the host as a possible cause."""


class Member:
    """A host while the fleet is open. `watch` runs beside it.

    sandboxes, cpus, memory_mb: open there, and their allowed resources. images: names of images known to be there.
    """

    def __init__(self, host: Host, make: Callable[[Host], DockerBackend]) -> None:
        self.host = host
        self.sandboxes = 0
        self.cpus = 0.0
        self.memory_mb = 0
        self.images: set[str] = set()
        self._make = make
        self._backend: DockerBackend | None = None
        self._left: list[Owner] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._processors, self._memory_mb = 1, 1
        self._missed = self._failures = 0
        self._probe_began = math.inf
        """The beginning of the present look."""
        self._rest_s, self._rests_until = FIRST_REST_S, 0.0
        self._silent_until = 0.0
        """Until when it is not said again why a lost host can't be reached."""

    @property
    def backend(self) -> DockerBackend:
        """Return the maker of sandboxes there. Raises DaemonUnavailable for a lost host."""
        if self._backend is None:
            raise DaemonUnavailable(f"the Docker host {self.host.url} is lost")
        return self._backend

    @property
    def is_usable(self) -> bool:
        """Tell whether it may get new sandboxes."""
        return not self.is_silent and time.monotonic() >= self._rests_until

    @property
    def is_silent(self) -> bool:
        """Tell whether it is lost, or may be: the last look found nothing, or takes long."""
        return self._backend is None or self._missed > 0 or time.monotonic() - self._probe_began > SLOW_S

    @property
    def is_full(self) -> bool:
        """Tell whether it has as many sandboxes as its capacity allows."""
        return self.host.capacity is not None and self.sandboxes >= self.host.capacity

    @property
    def load(self) -> float:
        """Return the share of its processors or memory in use by sandboxes, whichever is more; beyond 1 when
        crowded."""
        return max(self.cpus / self._processors, self.memory_mb / self._memory_mb)

    def note_open(self, spec: SandboxSpec) -> None:
        """Take note of a sandbox's opening there."""
        self.sandboxes += 1
        self.cpus += spec.limits.cpus
        self.memory_mb += spec.limits.memory_mb

    def note_close(self, spec: SandboxSpec) -> None:
        """Take note of its end."""
        self.sandboxes -= 1
        self.cpus -= spec.limits.cpus
        self.memory_mb -= spec.limits.memory_mb

    def note_success(self) -> None:
        """Take note of a sandbox's success: it was opened, used and left."""
        self._failures, self._rest_s = 0, FIRST_REST_S

    def note_failure(self, error: BaseException) -> None:
        """Take note of a failure; after several in a row the host rests. Failures by no fault of the host's are
        passed over, and so are cancellations."""
        if not isinstance(error, Exception):
            return
        if not any(isinstance(one, _HOSTS) and not isinstance(one, SandboxEnded) for one in _causes(error)):
            return
        full = any(isinstance(one, StorageFull) for one in _causes(error))  # as it will be next time
        self._failures += MAX_FAILURES if full else 1
        if self._failures >= MAX_FAILURES and self.is_usable:
            self._rests_until = time.monotonic() + self._rest_s
            logger.warning(
                "Docker host %s rests for %.0f s: it has failed %d times in a row, or is full: %s",
                self.host.url,
                self._rest_s,
                self._failures,
                error,
            )
            self._rest_s, self._failures = min(2 * self._rest_s, LONGEST_REST_S), 0

    async def open(self) -> None:
        """Get in touch, and remove the remains of earlier lives there. Raises SandboxError."""
        backend = self._make(self.host)
        try:
            async with asyncio.timeout(OPEN_S):
                await backend.__aenter__()
        except TimeoutError as error:
            raise SandboxTimeout(f"the Docker host {self.host.url} did not answer within {OPEN_S:g} s") from error
        async with AsyncExitStack() as undo:
            undo.push_async_callback(lambda: finish(backend.__aexit__()))
            for owner in list(self._left):
                await remove_owned(backend.client, owner.id)
                self._left.remove(owner)
            async with daemon_errors(f"ask {self.host.url} what it is"):
                info = await backend.client.system.info()
            undo.pop_all()
        self._processors, self._memory_mb = max(1, info["NCPU"]), max(1, info["MemTotal"] // 2**20)
        self.images.clear()
        self._backend, self._missed = backend, 0

    async def close(self) -> None:
        """Remove everything there, as far as the host can be reached."""
        backend, self._backend = self._backend, None
        await asyncio.gather(*self._leaving, *([] if backend is None else [backend.__aexit__()]))

    async def watch(self) -> None:
        """Look again and again whether the host answers; when it is lost, wait until it is back."""
        while True:
            await asyncio.sleep(PROBE_S)
            if self._backend is None:
                await self._reopen()
            elif await self._is_answering(self._backend):
                self._missed = 0
            else:
                self._missed += 1
                if self._missed >= MISSED:
                    self._give_up(self._backend)

    async def _reopen(self) -> None:
        """Get in touch with a lost host, or say why this can't be done: not each time, as it is tried all the time."""
        try:
            await self.open()
        except (SandboxError, OSError) as error:  # this process may be out of descriptors: ssh needs some
            now = time.monotonic()
            if now >= self._silent_until:
                logger.warning("Docker host %s is not back: %s", self.host.url, error)
                self._silent_until = now + REMIND_S
        else:
            logger.warning("Docker host %s is back", self.host.url)
            self._silent_until = 0.0

    async def _is_answering(self, backend: DockerBackend) -> bool:
        self._probe_began = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S), daemon_errors("ask a Docker host whether it is there"):
                await backend.client.version()
        except (SandboxError, OSError):
            return False
        finally:
            self._probe_began = math.inf
        return True

    def _give_up(self, backend: DockerBackend) -> None:
        """Give the host up: its sandboxes are made again elsewhere. The old ones are removed when the host is back."""
        logger.warning("Docker host %s is lost, with %d sandboxes; looking for it", self.host.url, self.sandboxes)
        self._backend = None
        self._left.append(backend.owner)
        # Whoever does not answer holds this up for a minute, in which it may be back.
        leaving = asyncio.create_task(backend.__aexit__())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes: a user of a sandbox may raise a failure of its own because of the sandbox's."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__
