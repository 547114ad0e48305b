"""Tell kills for the machine's memory by the kernel's counts in a container, where its log can't be read."""

from __future__ import annotations

import asyncio
import math

from sandboxes.base import SandboxError
from sandboxes.docker.executor.channel import Channel, Identity

_PLACES = (
    ("memory.events", "memory.peak", "memory.max"),
    ("memory/memory.oom_control", "memory/memory.max_usage_in_bytes", "memory/memory.limit_in_bytes"),
)
"""Kills, the most that was used, and the limit, in bytes: of control groups' versions 2 (from Linux 5.19) and 1."""
_NEAR = 0.97
"""From this share of its limit on a group may have been at it: an engine's own processes can be counted beside it."""
_ANSWER_S = 5.0


async def killed_below_limit(channel: Channel) -> bool:
    """Return whether the kernel killed processes of a container that was never near its limit: the machine had too
    little memory. False without proof, as after the container's end."""
    for kills, peak, limit in _PLACES:
        try:
            async with asyncio.timeout(_ANSWER_S):
                counts = dict(line.split() for line in (await _text(channel, kills)).splitlines())
                if int(counts["oom_kill"]) == 0:
                    return False
                most = (await _text(channel, limit)).strip()
                return int(await _text(channel, peak)) < _NEAR * (math.inf if most == "max" else int(most))
        except (SandboxError, OSError, TimeoutError, ValueError, KeyError):
            continue
    return False


async def _text(channel: Channel, name: str) -> str:
    return (await channel.read(f"/sys/fs/cgroup/{name}", 4096, Identity())).decode()
