"""The network of sandboxes with network access: on it they reach the internet, and not each other."""

from __future__ import annotations

import logging

import aiodocker

from sandboxes.docker.daemon.client import DaemonClient

logger = logging.getLogger(__name__)

_NAME = "atropos-apart"
_BRIDGE = "atropos0"
"""The interface on the Docker daemon's machine, for a rule of its firewall."""


async def ensure_network(client: DaemonClient, runtime: str | None) -> str:
    """Return the id of the network, and make a missing one; "bridge" if the engine makes no such network.

    It stays, for all sandboxes of all owners. Raises aiodocker's errors.
    """
    if runtime == "runsc":
        return "bridge"  # gVisor has no way to the name server that the engine runs in other networks
    found = await _ids(client)
    if not found:
        description = {
            "Name": _NAME,
            "Driver": "bridge",
            "CheckDuplicate": True,
            "Options": {
                "com.docker.network.bridge.enable_icc": "false",
                "com.docker.network.bridge.name": _BRIDGE,
            },
        }
        try:
            await client.networks.create(description)
        except aiodocker.DockerError as error:
            if error.status != 409:  # another process was quicker
                logger.warning("This engine can't keep sandboxes with a network from each other: %s", error.message)
        found = await _ids(client)
    return found[0] if found else "bridge"


async def _ids(client: DaemonClient) -> list[str]:
    """Return the ids of the networks of this name, the oldest first."""
    networks = await client.networks.list(filters={"name": _NAME})  # also those whose names hold this one
    return [n["Id"] for n in sorted(networks, key=lambda network: str(network["Created"])) if n["Name"] == _NAME]
