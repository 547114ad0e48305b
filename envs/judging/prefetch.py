"""A coming task's image and sandboxes, made ready while the rollouts of earlier tasks still run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from envs.judging.specs import rollout_spec, verifier_spec
from envs.judging.steps import parts
from envs.types import InfraError, Task
from sandboxes.base import Backend, SandboxError, SandboxSpec
from sandboxes.shielding import stop

logger = logging.getLogger(__name__)

Complete = Callable[[SandboxSpec], Awaitable[SandboxSpec]]


class Prefetch:
    """Images and sandboxes of coming tasks. Used as `async with`, inside its backend.

    warm: how many sandboxes of the agent's and of the verifier's kind shall stand ready; 0 for the image alone.
    complete: adds the agent's needs to the spec of its sandbox.
    """

    def __init__(self, backend: Backend, warm: int, complete: Complete) -> None:
        self._backend = backend
        self._warm = warm
        self._complete = complete
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Prefetch:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await stop(self._under_way.values())

    def begin(self, task: Task) -> None:
        """Begin to fetch, and return at once. No image is made twice: rollouts that come before wait for it."""
        if task.id not in self._under_way:
            work = self._under_way[task.id] = asyncio.create_task(self._fetch(task), name=f"prefetch {task.id}")
            work.add_done_callback(lambda _: self._under_way.pop(task.id))

    async def _fetch(self, task: Task) -> None:
        try:
            image = await self._backend.ensure_image(task.image, task.context)
            for own in filter(None, (part.hidden.own for part in parts(task))):
                await self._backend.ensure_image(own.image, own.context)
            spec = await self._complete(rollout_spec(task, image))
        except (SandboxError, InfraError) as error:
            logger.info("what task %s needs was not made ahead: %s", task.id, error)  # its rollout tries again
            return
        if self._warm and not task.hidden.in_place:  # such a sandbox has a door of its own
            self._backend.prepare(spec, self._warm)
            if task.hidden.own is None:
                self._backend.prepare(verifier_spec(task, image), self._warm)
