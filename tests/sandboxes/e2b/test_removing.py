"""The end of an E2B backend on servers that do otherwise than asked."""

import asyncio
import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sandboxes.base import DaemonRefused, DaemonUnavailable, Limits
from sandboxes.docker.executor.container import Kind
from sandboxes.e2b import backend
from sandboxes.e2b.options import E2BOptions
from sandboxes.owner import PREFIX, Owner


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_sandbox_that_stays_listed_is_removed_once(refuses):
    removed = []

    async def request(method, path, *_, **__):
        await asyncio.sleep(0)
        if method == "GET":
            return {"items": [{"sandboxID": "one", "metadata": {PREFIX + "owner": "me"}}]}
        removed.append(path)
        if refuses:
            raise DaemonRefused("no")

    server = SimpleNamespace(request=request, retry=lambda ask, _: ask())
    async with asyncio.timeout(5):
        await backend._remove_all(server, "me")
    assert removed == ["/sandboxes/one"]


async def test_the_dead_are_removed_side_by_side(monkeypatch):
    """A server that fails is asked again for a minute about each."""
    labels = replace(Owner.of_this_process(), id="gone", pid=2**22 + 1).labels()

    async def request(method, path, *_, **__):
        if method == "GET":
            return {"items": [{"sandboxID": str(number), "metadata": labels} for number in range(100)]}
        await asyncio.sleep(0.1)
        raise DaemonRefused("no")

    server = SimpleNamespace(request=request, retry=lambda ask, _: ask())
    async with asyncio.timeout(5):
        assert await backend.reap(server, labels[PREFIX + "host"]) == 100


async def test_a_tool_that_a_server_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(backend, "TOOL_S", 0.1)

    class Stream:
        async def read_all(self, *_):
            await asyncio.Event().wait()

        async def write(self, data):
            return

        async def close(self):
            return

    class Inside:
        server = SimpleNamespace(retry=lambda work, _: work())

        async def start_tool(self, *_, **__):
            return Stream()

        async def check(self):
            return

    parts = (Kind("image", Limits(), False), "box", None, {}, contextlib.AsyncExitStack())
    box = backend.E2BContainer(*parts, inside=Inside(), options=E2BOptions())
    async with asyncio.timeout(5):
        with pytest.raises(DaemonUnavailable, match="pack in box broke off: TimeoutError"):
            await box.run("pack", "/app")
