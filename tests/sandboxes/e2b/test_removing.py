"""The end of an E2B backend on servers that do otherwise than asked."""

import asyncio
from types import SimpleNamespace

import pytest

from sandboxes.base import DaemonRefused
from sandboxes.e2b import backend
from sandboxes.owner import PREFIX


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
