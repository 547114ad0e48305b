"""Images of sandboxes past the Docker daemon, which must not remove them meanwhile."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.base import ImageMissing, SandboxDied, SandboxError
from sandboxes.docker.crun.layers import Stack, has_all_layers, image_layers, snapshot_layers
from sandboxes.docker.crun.reap import OWNERS
from sandboxes.docker.daemon.client import DaemonClient, daemon_errors, image_remedy
from sandboxes.docker.daemon.reap import remove
from sandboxes.docker.daemon.starter import DaemonStarter
from sandboxes.owner import Owner

logger = logging.getLogger(__name__)

_KNOWN_S = 10.0
"""How long a name stands for the same image without being looked up again."""
_HELD = 16
"""The most images held without a sandbox of them."""


@dataclass(slots=True)
class Image:
    """An image of the Docker daemon's. users: its sandboxes."""

    id: str
    config: Mapping[str, Any]
    stack: Stack
    users: int = 0


class Images:
    """Looks images up, and holds each with a container that runs and does nothing. If a hold is lost all the same, as
    by `docker rm -f`, the next look-up of its image holds it again.

    daemon: starts these containers. storage: the Docker daemon's directory.
    """

    def __init__(self, client: DaemonClient, owner: Owner, daemon: DaemonStarter, storage: Path) -> None:
        self._client = client
        self._owner = owner
        self._daemon = daemon
        self._storage = storage
        self._named: dict[str, tuple[str, float]] = {}
        self._held: dict[str, Image] = {}
        self._turn = asyncio.Lock()

    async def acquire(self, name: str) -> Image:
        """Return an image, which stays until it is given back. Raises ImageMissing with the remedy."""
        image = self._known(name)
        if image is None:
            async with self._turn:
                image = self._known(name) or await self._look_up(name)
        image.users += 1
        return image

    def _known(self, name: str) -> Image | None:
        """Return the image of a name that was looked up just now, if it is whole."""
        found, at = self._named.get(name, ("", -math.inf))
        image = self._held.get(found)
        return image if image and time.monotonic() - at <= _KNOWN_S and self.has_all_files(image) else None

    def has_all_files(self, image: Image) -> bool:
        """Return whether an image's files are all there."""
        return has_all_layers(self._storage, image.stack)

    async def release(self, image: Image) -> None:
        """Let go of an image. Never raises: a hold that the Docker daemon does not remove now goes with its owner."""
        image.users -= 1
        idle = [one for one in self._held.values() if not one.users]
        for one in idle[: max(0, len(idle) - _HELD)]:
            del self._held[one.id]
            try:
                await remove(self._client, self._holder_name(one.id))
            except SandboxError as error:
                logger.warning("%s", error)

    async def _look_up(self, name: str) -> Image:
        try:
            async with daemon_errors(f"look for image {name}"):
                seen = await self._client.images.inspect(name)
        except ImageMissing as error:
            raise ImageMissing(image_remedy(name)) from error
        image = self._held.pop(seen["Id"], None)
        if image is None or not self.has_all_files(image) or not await self._is_held(image.id):
            await remove(self._client, self._holder_name(seen["Id"]))
            await self._daemon.start_holder(seen["Id"], self._holder_name(seen["Id"]))
            layers = await self._layers(seen)
            if image is None or not self.has_all_files(image):  # one that is made again has other layers under its id
                image = Image(seen["Id"], seen["Config"] or {}, layers)
        self._held[image.id] = image
        self._named[name] = image.id, time.monotonic()
        return image

    async def _layers(self, seen: Mapping[str, Any]) -> Stack:
        """Return the layers of an image that is held."""
        driver = seen.get("GraphDriver") or {}
        if driver.get("Data"):
            return image_layers(driver)
        process = (await self._state(seen["Id"]))["Pid"]
        name = f"{OWNERS}/{self._owner.id}/layers"
        return await asyncio.to_thread(snapshot_layers, process, self._storage / name, name)

    async def _is_held(self, found: str) -> bool:
        """Return whether the holding container of the image with this id runs."""
        try:
            return bool((await self._state(found))["Running"])
        except SandboxDied:  # it is gone
            return False

    async def _state(self, found: str) -> Mapping[str, Any]:
        """Return the state of the holding container of the image with this id."""
        async with daemon_errors(f"look whether image {found} is held"):
            shown: Mapping[str, Any] = await self._client.containers.container(self._holder_name(found)).show()
        return shown["State"]  # type: ignore[no-any-return]

    def _holder_name(self, found: str) -> str:
        return f"atropos-{self._owner.id}-holds-{found.removeprefix('sha256:')[:16]}"
