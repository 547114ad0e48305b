"""Kills for want of memory, by the kernel's counts in a container."""

from types import SimpleNamespace

import pytest

from sandboxes.base import SandboxDied
from sandboxes.docker.executor.memory import killed_below_limit

OLD = ("memory/memory.oom_control", "memory/memory.max_usage_in_bytes", "memory/memory.limit_in_bytes")
NEW = ("memory.events", "memory.peak", "memory.max")


def container(names, kills, peak, limit):
    """Return a container's channel, whose control group has these files."""
    said = ("low 0\noom 0\noom_kill" if names is NEW else "oom_kill_disable 0\nunder_oom 0\noom_kill") + f" {kills}"
    files = {f"/sys/fs/cgroup/{name}": f"{text}\n" for name, text in zip(names, (said, peak, limit), strict=True)}

    async def read(path, max_bytes, identity):
        if path not in files:
            raise FileNotFoundError(path)
        return files[path].encode()

    return SimpleNamespace(read=read)


@pytest.mark.parametrize("names", [OLD, NEW])
@pytest.mark.parametrize(
    ("kills", "peak", "limit", "proven"),
    [(0, 500, 1000, False), (2, 500, 1000, True), (2, 1000, 1000, False), (2, 980, 1000, False)],
)
async def test_programs_killed_below_their_limit_were_killed_for_the_machine(names, kills, peak, limit, proven):
    assert await killed_below_limit(container(names, kills, peak, limit)) is proven


async def test_without_a_limit_each_kill_is_for_the_machine():
    assert await killed_below_limit(container(NEW, 1, 500, "max"))


@pytest.mark.parametrize("error", [FileNotFoundError("no such file"), SandboxDied("gone"), TimeoutError()])
async def test_unreadable_counts_prove_nothing(error):
    async def read(*_):
        raise error

    assert not await killed_below_limit(SimpleNamespace(read=read))


async def test_a_kernel_without_the_most_that_was_used_proves_nothing():
    async def read(path, max_bytes, identity):
        if path.endswith("memory.events"):
            return b"oom 0\noom_kill 1\n"
        raise FileNotFoundError(path)

    assert not await killed_below_limit(SimpleNamespace(read=read))
