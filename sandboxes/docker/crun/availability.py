"""Whether sandboxes can be started by crun here, past the Docker daemon, and why not."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.base import DaemonUnavailable
from sandboxes.docker.crun import kernel
from sandboxes.docker.daemon.client import DaemonClient, connect, sees_folder
from sandboxes.docker.daemon.startup import install

STARTERS = ("docker", "crun")
_STORES = {"overlay2": "overlay2", "overlayfs": "containers"}
"""A folder of the Docker daemon's, by its storage driver: its own, or that of containerd, Docker 29's default."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the Docker daemon has to start sandboxes; a half sentence. missing: the only missing package."""

    why: str
    missing: str = ""


def find_crun(client: DaemonClient, info: Mapping[str, Any], runtime: str | None = None) -> Path | Obstacle:
    """Return the path of crun, if it can replace the Docker daemon here. info: the Docker daemon's description of
    itself.

    runtime: the requested one, which crun would not be.
    """
    storage, driver = Path(info["DockerRootDir"]), info["Driver"]
    options = {option.partition(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or ()}
    lacking = sorted({"userns", "rootless", "selinux"} & options)
    reasons = {
        f"the option for the runtime {runtime}": runtime is not None,
        "this process is not root": os.geteuid() != 0,
        f"its storage driver is {driver}, neither overlay2 nor overlayfs": driver not in _STORES,
        "the Docker daemon is not on this host": not (client.here and sees_folder(storage / _STORES.get(driver, ""))),
        f"the Docker daemon isolates with {', '.join(lacking)}, which is its own affair": bool(lacking),
        "the Docker daemon has no seccomp profile": "seccomp" not in options,
        f"a mount can't have layers below {storage}": re.search(r"[,:\\\s]", str(storage)) is not None,
        "this host's kernel is not Linux, from 5.6 on": not _has_path_resolution(),
    }
    for why, true in reasons.items():
        if true:
            return Obstacle(why)
    for program, package in (("crun", "crun"), ("flock", "util-linux")):
        if shutil.which(program) is None:
            remedy = f"the package {package} brings it, and `python -m sandboxes setup` installs it"
            return Obstacle(f"there is no {program}; {remedy}", package)
    return Path(str(shutil.which("crun")))


async def ensure_crun() -> str:
    """Install crun if nothing else is missing, and name the starter of sandboxes in a few words. Raises
    SandboxError."""
    async with connect() as client:
        info = await client.system.info()
        found = find_crun(client, info)
        if isinstance(found, Obstacle) and found.missing and shutil.which("apt-get"):
            try:
                await install(found.missing)
            except DaemonUnavailable as error:
                return f"the Docker daemon: {error}"
            found = find_crun(client, info)
    return f"the Docker daemon: {found.why}" if isinstance(found, Obstacle) else f"{found}, past the Docker daemon"


def _has_path_resolution() -> bool:
    """Return whether this is a Linux with path resolution within a root, the newest of our needs."""
    if not sys.platform.startswith("linux"):
        return False
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(kernel.open_in_root(root, "/", os.O_PATH))
    except OSError:
        return False
    finally:
        os.close(root)
    return True
