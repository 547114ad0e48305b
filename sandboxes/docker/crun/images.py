"""Images that sandboxes are made of past the Docker daemon, which must not remove them meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandboxes.base import ImageMissing
from sandboxes.docker.build import remedy
from sandboxes.docker.crun.layers import Stack, image_layers
from sandboxes.docker.daemon import DaemonClient, daemon_errors
from sandboxes.docker.reap import remove
from sandboxes.owner import Owner

_KNOWN_S = 10.0
"""How long a name stands for the same image without being looked up again."""
_HELD = 64
"""Images of which no sandbox is left are held as long as they are no more than these."""


@dataclass(slots=True)
class Image:
    """An image of the Docker daemon's. users: sandboxes that are made of it."""

    id: str
    config: Mapping[str, Any]
    stack: Stack
    users: int = 0


class Images:
    """Looks images up, and holds each with a container that is never started."""

    def __init__(self, client: DaemonClient, owner: Owner) -> None:
        self._client = client
        self._owner = owner
        self._named: dict[str, tuple[str, float]] = {}
        self._held: dict[str, Image] = {}
        self._turn = asyncio.Lock()

    async def take(self, name: str) -> Image:
        """Return an image, which stays until it is given back. Raises ImageMissing with the remedy."""
        found, at = self._named.get(name, ("", 0.0))
        image = self._held.get(found)
        if image is None or time.monotonic() - at > _KNOWN_S:
            async with self._turn:
                image = await self._look_up(name)
        image.users += 1
        return image

    async def give_back(self, image: Image) -> None:
        image.users -= 1
        idle = [one for one in self._held.values() if not one.users]
        for one in idle[: max(0, len(idle) - _HELD)]:
            del self._held[one.id]
            await remove(self._client, self._hold(one.id))

    async def _look_up(self, name: str) -> Image:
        found, at = self._named.get(name, ("", 0.0))
        if found in self._held and time.monotonic() - at <= _KNOWN_S:
            return self._held[found]
        try:
            async with daemon_errors(f"look for image {name}"):
                seen = await self._client.images.inspect(name)
        except ImageMissing as error:
            raise ImageMissing(remedy(name)) from error
        image = self._held.pop(seen["Id"], None)
        if image is None:
            config = {"Image": seen["Id"], "Labels": self._owner.labels(), "NetworkDisabled": True, "Cmd": ["none"]}
            async with daemon_errors(f"hold image {name}"):
                await self._client.containers.create(config, name=self._hold(seen["Id"]))
            image = Image(seen["Id"], seen["Config"] or {}, image_layers(seen["GraphDriver"]))
        self._held[image.id] = image
        self._named[name] = image.id, time.monotonic()
        return image

    def _hold(self, found: str) -> str:
        return f"atropos-{self._owner.id}-holds-{found.removeprefix('sha256:')[:16]}"
