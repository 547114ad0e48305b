"""What `doctor` looks at beside inference server and trainer API: tasks, Docker daemon, images, disk."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from envs.checks import Check, Status
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from envs.types import BadTask
from sandboxes.base import SandboxError
from sandboxes.docker.daemon import connect

GIB = 2**30


async def surroundings(config: SWEEnvConfig) -> AsyncIterator[Check]:
    """Check tasks, the Docker daemon, the images that the tasks name, and disk space."""
    try:
        train, evaluate = SWEEnv.load_tasks(config)
    except BadTask as error:
        yield Check("tasks", Status.WRONG, str(error))
        return
    count = {"train": len(train), "evaluate": len(evaluate)}
    yield Check("tasks", Status.OK, f"{len(train)} to train on, {len(evaluate)} to evaluate on", count)
    try:
        async with connect() as docker:
            info = await docker.system.info()
            wanted = {task.image for task in train if task.image}
            here = {tag for image in await docker.images.list() for tag in image.get("RepoTags") or ()}
    except (SandboxError, OSError) as error:
        yield Check("sandboxes", Status.WRONG, str(error))
        return
    yield Check(
        "sandboxes",
        Status.OK,
        f"Docker {info['ServerVersion']}, {info['NCPU']} CPUs, {info['MemTotal'] / GIB:.0f} GiB",
        {"version": info["ServerVersion"], "cpus": info["NCPU"], "memory": info["MemTotal"]},
    )
    missing = sorted(name for name in wanted if name not in here and f"{name}:latest" not in here)
    built = sum(task.context is not None for task in train)
    if missing:
        text = f"{len(missing)} are not here and will be pulled: {', '.join(missing[:3])}"
        yield Check("images", Status.NOTE, text, {"missing": missing})
    else:
        yield Check("images", Status.OK, f"{len(wanted)} named and here, {built} built from the tasks' Dockerfiles")
    yield _disk(Path(info.get("DockerRootDir") or "/"), Path(config.run_dir or "runs"))


def _disk(*places: Path) -> Check:
    """Check the free space where images and results are written, as far as those places are on this machine."""
    free = {}
    for place in places:
        there = next((p for p in (place.absolute(), *place.absolute().parents) if p.exists()), Path("/"))
        free[str(place)] = shutil.disk_usage(there).free
    least = min(free.values())
    text = ", ".join(f"{size / GIB:.0f} GiB free for {place}" for place, size in free.items())
    return Check("disk", Status.OK if least > 2 * GIB else Status.NOTE, text, free)
