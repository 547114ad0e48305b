"""The images built for tasks, of this run and of past ones: shown, and removed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenacity import (
    retry,
    retry_if_exception,
    retry_if_exception_message,
    stop_after_attempt,
    stop_after_delay,
    wait_fixed,
)

from sandboxes.base import SandboxError
from sandboxes.docker.daemon.client import DaemonClient, daemon_errors
from sandboxes.docker.daemon.reap import remove_image

_OURS = "atropos-task:"
"""The beginning of their names, from `sandboxes.docker.images.store`."""
_DAY_S = 86_400.0
_MEASURING_S = 600.0


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image. names: of all contexts that it was built of. mb: the space freed by its removal, in MiB. days: its
    age. containers: how many use it."""

    names: Sequence[str]
    mb: float
    days: float
    containers: int


@retry(
    retry=retry_if_exception_message(match=".*is already running"),
    wait=wait_fixed(0.5),
    stop=stop_after_delay(60),
    reraise=True,
)
@retry(retry=retry_if_exception(lambda error: type(error) is SandboxError), stop=stop_after_attempt(3), reraise=True)
async def disk_usage(client: DaemonClient) -> Mapping[str, Any]:
    """Return what the Docker daemon says of its disk. Raises SandboxError.

    With containerd's image store it loses its way (404) if a container goes meanwhile, so it is sent again. It measures
    for one at a time, and refuses others (500)."""
    async with daemon_errors("measure the images", _MEASURING_S):
        usage: Mapping[str, Any] = await client._query_json("system/df")
    return usage


async def list_task_images(client: DaemonClient) -> Sequence[StoredImage]:
    """Return the images built for tasks, the oldest first. Raises SandboxError."""
    usage = await disk_usage(client)
    found = []
    for image in sorted(usage["Images"] or [], key=lambda image: image["Created"]):
        tags = image["RepoTags"] or []
        if tags and all(tag.startswith(_OURS) for tag in tags):
            own = max(0, image["Size"] - max(0, image["SharedSize"]))
            days = max(0.0, time.time() - image["Created"]) / _DAY_S
            found.append(StoredImage(tags, own / 2**20, days, max(0, image["Containers"])))
    return found


async def remove_images(client: DaemonClient, images: Sequence[StoredImage], *, days: float) -> Sequence[StoredImage]:
    """Remove those without containers and older than this many days. Returns those that are gone. Raises
    SandboxError."""
    going = [image for image in images if not image.containers and image.days >= days]
    return [image for image in going if await remove_names(client, image.names)]


async def remove_names(client: DaemonClient, names: Sequence[str]) -> bool:
    """Remove an image by all of its names; one in use stays. Returns whether it is gone."""
    return all([await remove_image(client, name, force=False) for name in names])
