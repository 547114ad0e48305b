"""Removing the remains of sandboxes: this process's at its end, and a dead process's at each start of one of ours."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Any

import aiodocker

from sandboxes.base import DaemonUnavailable, SandboxDied, SandboxError
from sandboxes.docker.daemon.client import DaemonClient, daemon_errors
from sandboxes.owner import PREFIX, Owner, boot_time

logger = logging.getLogger(__name__)

_ANSWER_S = 60.0
_PAUSES_S = (0.05, 0.2, 0.5, 2.0, None)
_ABANDONED_S = 3600.0
"""Seconds after its end at which a container surely has no owner: its executor ends with its owner."""


async def remove(client: DaemonClient, name: str, *, volumes: bool = True) -> None:
    """Remove a container with its anonymous volumes; a missing or vanishing one is as good as removed."""
    async with daemon_errors(f"remove container {name}"):
        for pause in _PAUSES_S:
            try:
                await client.containers.container(name).delete(force=True, v=volumes)
            except aiodocker.DockerError as error:
                if error.status in (404, 409):
                    return
                if not is_ending(error) or pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                return


def is_ending(error: aiodocker.DockerError) -> bool:
    """Return whether an engine answers a stop or removal with a container's coming end: Podman while it stops the
    container already, Docker while a killed process in it waits for the disk."""
    return any(words in str(error.message) for words in ("state improper", "did not receive an exit event"))


async def remove_image(client: DaemonClient, name: str, *, force: bool = True) -> bool:
    """Remove an image, or one of its names; without `force` an image in use by a container stays. Returns whether it
    is gone."""
    async with daemon_errors(f"remove image {name}"):
        try:
            await client.images.delete(name, force=force)
        except aiodocker.DockerError as error:
            if error.status not in (404, 409):
                raise
            return error.status == 404
    return True


async def remove_owned(client: DaemonClient, owner_id: str) -> None:
    """Remove everything with this owner's label. Raises SandboxError if the Docker daemon does not do it."""
    label = f"{PREFIX}owner={owner_id}"
    await asyncio.gather(*[remove(client, c.id) for c in await _containers(client, label)])
    for image in await _images(client, label):
        await remove_image(client, image["Id"])


async def reap_dead_owners(client: DaemonClient) -> int:
    """Remove the containers and images of dead owners. Returns how many; failed removals are logged.

    If nothing can be known here of an owner's process, only its surely useless things go: containers that do
    not run, and images without containers, if they are old or older than the host's boot.
    """
    useless = time.time() - _ABANDONED_S
    doomed: list[str] = []
    if client.here:
        useless = max(useless, boot_time())
    for container in await _containers(client, PREFIX + "owner"):
        owner = _owner(container["Labels"], container.id)
        if owner is None or owner.is_alive():
            continue
        if owner.is_dead() or (container["State"] != "running" and await _end_time(container) < useless):
            doomed.append(container.id)
    removed = sum(await asyncio.gather(*(_is_removed(remove(client, name)) for name in doomed)))
    for image in await _images(client, PREFIX + "owner"):
        owner = _owner(image["Labels"], image["Id"])
        if owner is None or owner.is_alive():
            continue
        if owner.is_dead() or image["Created"] < useless:
            removed += await _is_removed(remove_image(client, image["Id"], force=owner.is_dead()))
    if removed:
        logger.warning("Removed %d containers and images that a dead process had left", removed)
    return removed


async def _is_removed(removal: Awaitable[object]) -> bool:
    """Return whether it succeeded. A container may stay because of a process in wait for the disk, say; others can
    start all the same."""
    try:
        await removal
    except DaemonUnavailable:
        raise
    except SandboxError as error:
        logger.warning("What a dead process has left stays for now: %s", error)
        return False
    return True


async def _end_time(container: Any) -> float:
    """Return the time of a container's end, in seconds since 1970, or of its creation if it never ran."""
    created = float(container["Created"])  # `show` makes a text of it
    try:
        async with daemon_errors("look when a container ended"):
            state = (await container.show())["State"]
            ended = datetime.fromisoformat(state["FinishedAt"])
    except SandboxDied:  # it is gone
        return math.inf
    return ended.timestamp() if ended.year > 1 else created


def _owner(labels: Mapping[str, str], what: str) -> Owner | None:
    try:
        return Owner.from_labels(labels)
    except (KeyError, ValueError):
        logger.warning("%s has labels that are not quite ours; left alone", what[:19])
        return None


async def _containers(client: DaemonClient, label: str) -> list[Any]:
    async with daemon_errors("list containers"):
        return list(await client.containers.list(all=True, filters={"label": [label]}))


async def _images(client: DaemonClient, label: str) -> list[Mapping[str, Any]]:
    async with daemon_errors("list images"):
        filters = aiodocker.utils.clean_filters({"label": [label]})
        return list(await client._query_json("images/json", params={"filters": filters}))
