"""`python -m envs.swe doctor`: is everything there, and would training be right?"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from envs.cli import parse
from envs.doctor import Certificate, Check, Status, examine
from envs.options import Options, UsageError
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.types import BadTask
from sandboxes.base import SandboxError
from sandboxes.docker.daemon import connect

GIB = 2**30


def main(argv: Sequence[str]) -> int:
    """Examine, print the certificate. 0: training would be right; 1: it would not; 2: wrong options."""
    as_json = "--json" in argv
    try:
        options = parse(SWEEnv, "doctor", [argument for argument in argv if argument != "--json"])
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.ERROR)
    certificate = asyncio.run(_examine(options))
    print(json.dumps(certificate.to_json(), indent=2) if as_json else certificate.render())
    return 0 if certificate.ok else 1


async def _examine(options: Options) -> Certificate:
    checks = [check async for check in examine(options)]
    checks += [check async for check in _surroundings(options.env)]
    return Certificate(checks)


async def _surroundings(config: SWEEnvConfig) -> AsyncIterator[Check]:
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
