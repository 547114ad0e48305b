"""Folders of this host in containers, for reading alone: mounted if the Docker daemon is here, else sent there
once as volumes."""

from __future__ import annotations

import asyncio
import logging
import tarfile
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import aiodocker

from sandboxes.docker.daemon.client import DaemonClient, daemon_errors
from sandboxes.docker.daemon.reap import remove

logger = logging.getLogger(__name__)

_SENDING_S = 1800.0
_DONE = "/.complete"


class Mounts:
    """Describes folders to a Docker daemon. A daemon elsewhere gets each folder once."""

    def __init__(self, client: DaemonClient, labels: Mapping[str, str]) -> None:
        self._client = client
        self._labels = labels
        self._sent: set[str] = set()
        self._sending = asyncio.Lock()

    async def describe(self, mounts: Sequence[tuple[str, str]], image: str) -> list[dict[str, Any]]:
        """Return the Docker daemon's description of mounts.

        mounts: a folder's place in the container, and the folder here; its name stands for its content.
        image: present there. Raises SandboxError if a folder can't be sent, ValueError if it is no folder."""
        for _, folder in mounts:
            if not await asyncio.to_thread(Path(folder).is_dir):
                raise ValueError(f"{folder} is no folder of this host, so that no sandbox can have it")
        if self._client.here:
            return [_mount_entry("bind", target, folder) for target, folder in mounts]
        return [_mount_entry("volume", target, await self._volume(Path(folder), image)) for target, folder in mounts]

    async def _volume(self, folder: Path, image: str) -> str:
        name = f"atropos-{folder.name}"
        async with self._sending:
            if name not in self._sent:
                async with daemon_errors(f"send {folder} to the Docker daemon", _SENDING_S):
                    await self._send(folder, name, image)
                self._sent.add(name)
        return name

    async def _send(self, folder: Path, volume: str, image: str) -> None:
        """Fill a volume by way of a container, without starting it."""
        helper = f"{volume}-{uuid.uuid4().hex[:8]}"
        config: dict[str, Any] = {
            "Image": image,
            "Labels": dict(self._labels),
            "NetworkDisabled": True,
            "HostConfig": {"Mounts": [_mount_entry("volume", "/folder", volume, read_only=False)]},
        }
        container = await self._client.containers.create(config, name=helper)
        try:
            if await _is_complete(container):
                return
            logger.info("%s is sent to the Docker daemon, once", folder)
            with tempfile.TemporaryFile() as packed:
                await asyncio.to_thread(_pack, folder, packed)
                await container.put_archive("/folder", packed)  # type: ignore[no-untyped-call]  # aiodocker's gap
        finally:
            # Not with its volumes: the one that it was made for stays.
            await remove(self._client, helper, volumes=False)


async def _is_complete(container: aiodocker.containers.DockerContainer) -> bool:
    try:
        (await container.get_archive("/folder" + _DONE)).close()
    except aiodocker.DockerError as error:
        if error.status != 404:
            raise
        return False
    return True


def _pack(folder: Path, into: IO[bytes]) -> None:
    with tarfile.open(fileobj=into, mode="w") as tar:
        tar.add(folder, ".")
        tar.addfile(tarfile.TarInfo(_DONE[1:]))  # last: what was sent in part is sent again
    into.seek(0)


def _mount_entry(kind: str, target: str, source: str, *, read_only: bool = True) -> dict[str, Any]:
    # Of what else is mounted below a folder older engines make nothing read-only: it is not there.
    alone = {"BindOptions": {"NonRecursive": True}} if kind == "bind" else {}
    return {"Type": kind, "Target": target, "Source": source, "ReadOnly": read_only, **alone}
