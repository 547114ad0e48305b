"""What the Docker daemon's word says of a container."""

import asyncio
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from types import SimpleNamespace

import aiodocker
import pytest
from small_archives import archive

from sandboxes.base import DaemonError, Limits
from sandboxes.docker.daemon.container import DaemonContainer, fatal_limit, reached_limit
from sandboxes.docker.executor.container import Kind


@pytest.mark.parametrize(
    ("code", "oom", "limit"),
    [(137, False, None), (137, True, "memory"), (70, False, "memory"), (2, False, "processes")],
)
def test_how_it_ended_names_the_limit(code, oom, limit):
    assert fatal_limit({"ExitCode": code, "OOMKilled": oom}) == limit


@pytest.mark.parametrize(
    ("stats", "limit"),
    [
        ([], None),
        ([{"memory_stats": {"limit": 100, "usage": 98}}], "memory"),
        ([{"memory_stats": {"limit": 100, "usage": 98, "stats": {"inactive_file": 20}}}], None),
        ([{"memory_stats": {"limit": 100, "usage": 98, "stats": {"total_active_file": 20}}}], None),
        ([{"pids_stats": {"limit": 5, "current": 5}}], "processes"),
    ],
)
def test_what_it_uses_names_the_limit(stats, limit):
    assert reached_limit(stats) == limit


def made(container, channel, log=None):
    kind, stack = Kind("image", Limits(), False), AsyncExitStack()
    return DaemonContainer(kind, "box", container, channel, {}, stack, client=None, labels={}, log=log)


@pytest.mark.parametrize("starved", [False, True])
async def test_a_kill_for_the_machines_memory_is_at_no_limit_of_its_own(starved):
    state = {"Running": False, "Paused": False, "OOMKilled": True, "ExitCode": 137}
    handle = SimpleNamespace(id="4f" * 32, show=partial(asyncio.sleep, 0, {"State": state}))
    channel = SimpleNamespace(read=lambda *_: asyncio.sleep(0, b"oom_kill 0"), alive=False)
    container = made(handle, channel, SimpleNamespace(was_killed_for_host=lambda name: starved and name == handle.id))
    assert await container.host_out_of_memory() is starved
    assert await container.overran() == (None if starved else "memory")


@pytest.mark.parametrize(("errors", "uploads"), [(0, 1), (1, 2), (2, 3), (9, 3)])
async def test_an_upload_that_the_engine_breaks_off_is_made_again(errors, uploads):
    sent = []

    async def put_archive(target, data):
        sent.append(data.read())
        if len(sent) <= errors:
            raise aiodocker.DockerError(500, {"message": "passing bulk input to subprocess: write |1: broken pipe"})

    container = made(
        SimpleNamespace(put_archive=put_archive), SimpleNamespace(has_run=False, hold_requests=nullcontext)
    )
    if errors > 2:
        with pytest.raises(DaemonError, match="broken pipe"):
            await container.unpack(archive({}), "/app")
    else:
        await container.unpack(archive({}), "/app")
    assert sent == [archive({})] * uploads


async def test_two_uploads_at_once_both_find_it_paused():
    paused, seen = [], []

    async def pause():
        paused.append(True)

    async def unpause():
        paused.clear()

    async def put_archive(target, data):
        for _ in range(3):
            seen.append(len(paused))
            await asyncio.sleep(0.01 if target == "/long" else 0)

    container = SimpleNamespace(pause=pause, unpause=unpause, put_archive=put_archive)
    container = made(container, SimpleNamespace(has_run=True, hold_requests=nullcontext))
    await asyncio.gather(container.unpack(archive({}), "/short"), container.unpack(archive({}), "/long"))
    assert seen == [1] * 6


@pytest.mark.parametrize("runs", [True, False])
async def test_a_daemon_that_hears_late_of_a_pause_and_its_end_is_asked_again(runs):
    """A word of the last pause's end that comes after the next pause had it refuse the end of that one, for ever."""
    asked, said = [], {"pause": ["is already paused"] * 2 * runs, "unpause": ["is not paused"] * 3}

    async def ask(what):
        asked.append(what)
        if said[what]:
            raise aiodocker.DockerError(409, {"message": f"Container c {said[what].pop()}"})

    async def show():
        return {"State": {"Running": runs}}

    async def put_archive(target, data):
        asked.append("put")

    handle = SimpleNamespace(
        pause=lambda: ask("pause"), unpause=lambda: ask("unpause"), put_archive=put_archive, show=show
    )
    container = made(handle, SimpleNamespace(has_run=True, hold_requests=nullcontext))
    await container.unpack(archive({}), "/app")
    assert asked == (["pause"] * 3 + ["put"] + ["unpause"] * 4 if runs else ["pause", "put", "unpause"])
