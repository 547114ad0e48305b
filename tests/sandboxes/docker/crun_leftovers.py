"""What is to be seen on this machine of sandboxes that crun has started."""

import asyncio
from pathlib import Path

from waiting import in_time

from sandboxes.docker.crun.cgroups import TREE
from sandboxes.docker.crun.reap import OWNERS


def left_of(owner: str, storage: Path) -> list[str]:
    """What is to be seen of an owner's sandboxes on this machine."""
    above = [TREE / OWNERS, *(folder / OWNERS for folder in TREE.iterdir())]
    found = [str(path) for folder in above if folder.is_dir() for path in folder.glob(f"atropos-{owner}*")]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if f"{OWNERS}/{owner}" in line]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, groups = (process / "cmdline").read_bytes(), (process / "cgroup").read_text()
        except OSError:
            continue
        if f"{OWNERS}/{owner}".encode() in command or f"atropos-{owner}" in groups:
            found.append(f"process {process.name}: {command!r}")
    folder = storage / OWNERS / owner
    return found + [str(folder)] * folder.exists()


async def gone(owner: str, storage: Path) -> list[str]:
    await asyncio.to_thread(in_time, lambda: not left_of(owner, storage))
    return await asyncio.to_thread(left_of, owner, storage)
