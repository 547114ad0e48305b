"""An engine's features and gaps: Docker or Podman, with root or without."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.docker.daemon.client import DaemonClient, daemon_errors, sees_folder

_LIMITS = {"MemoryLimit": "memory", "SwapLimit": "swap", "PidsLimit": "processes", "CpuCfsQuota": "cpu"}
_RAISED = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
"""Podman raises these to 1,048,576 in each container, whatever it has itself."""
_PROCESSES = 32_768
"""Podman's own limit, at most."""


@dataclass(frozen=True, slots=True)
class Engine:
    """info: its own description. storage: its directory, if on this host.
    lacking: the resources that it says it can't limit.
    quotas: its storage may be able to limit a container's writes.
    raises: the limits that it would set higher than this host may allow, and their values here."""

    architecture: str
    info: Mapping[str, Any]
    storage: Path | None
    lacking: tuple[str, ...]
    quotas: bool
    raises: tuple[tuple[str, int], ...]

    @classmethod
    async def of(cls, client: DaemonClient) -> Engine:
        """Ask an engine. Raises SandboxError."""
        async with daemon_errors("ask the Docker daemon what it is"):
            info, version = await client.system.info(), await client.version()
        podman = any("Podman" in part["Name"] for part in version.get("Components") or [])
        held = podman and client.here and os.geteuid() == 0
        raises = tuple((name, _limit(what)) for name, what in _RAISED.items()) if held else ()
        storage = Path(info["DockerRootDir"])
        seen = client.here and await asyncio.to_thread(sees_folder, storage)
        lacking, quotas = tuple(missing_limits(info)), may_have_quotas(info)
        return cls(version["Arch"], info, storage if seen else None, lacking, quotas, raises)

    def adapt_config(self, host: Mapping[str, Any]) -> dict[str, Any]:
        """Return a container's host configuration as this engine takes it: it would refuse a limit of the CPU that it
        can't keep, or that is above its machine's CPUs. It ignores other parts beyond its abilities."""
        fitted = dict(host)
        if "NanoCpus" in fitted:
            fitted["NanoCpus"] = min(fitted["NanoCpus"], self.info["NCPU"] * 10**9)
        if "cpu" in self.lacking:
            fitted.pop("NanoCpus", None)
        if self.raises:
            fitted["Ulimits"] = [{"Name": name, "Soft": most, "Hard": most} for name, most in self.raises]
        return fitted


def _limit(what: int) -> int:
    most = resource.getrlimit(what)[1]
    return min(most, _PROCESSES) if what == resource.RLIMIT_NPROC else most


def missing_limits(info: Mapping[str, Any]) -> list[str]:
    """Return the limits that the Docker daemon says it lacks; rootless ones may take such limits and ignore them."""
    return [what for field, what in _LIMITS.items() if info.get(field) is False]


def may_have_quotas(info: Mapping[str, Any]) -> bool:
    backing = dict(info.get("DriverStatus") or ()).get("Backing Filesystem")
    return info["Driver"] in ("btrfs", "zfs") or (info["Driver"] == "overlay2" and backing == "xfs")
