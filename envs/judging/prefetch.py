"""A coming task's image and sandboxes, made ready while the rollouts of earlier tasks still run."""

from __future__ import annotations

import asyncio
import logging

from envs.judging.specs import agent_spec, verifier_spec
from envs.judging.steps import parts
from envs.types import Task
from sandboxes.base import Backend, SandboxError

logger = logging.getLogger(__name__)


class Prefetch:
    """Images and sandboxes of coming tasks. Used as `async with`, inside its backend.

    warm: how many sandboxes of the agent's and of the verifier's kind shall stand ready; 0 for the image alone.
    """

    def __init__(self, backend: Backend, warm: int) -> None:
        self._backend = backend
        self._warm = warm
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Prefetch:
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
        except SandboxError as error:
            logger.info("the image of task %s was not made ahead: %s", task.id, error)  # its rollout tries again
            return
        if self._warm:
            self._backend.prepare(agent_spec(task, image), self._warm)
            if task.hidden.own is None:
                self._backend.prepare(verifier_spec(task, image), self._warm)
