"""One watch over all pods."""

import asyncio

import pytest
from waiting import until

from sandboxes.docker.executor.container import Kind

pytestmark = pytest.mark.docker


async def test_the_watch_goes_on_after_its_place_is_gone(make, server, spec):
    async with make() as backend:
        server.gone_before = 10**9
        opening = asyncio.create_task(backend._acquire(Kind.of(spec), spec))
        await until(lambda: server.expired)
        server.gone_before = 0
        await (await opening).discard()
