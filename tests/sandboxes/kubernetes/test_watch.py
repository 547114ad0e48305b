"""One watch over all pods."""

import asyncio

import pytest

from sandboxes.docker.executor.container import Kind

pytest.importorskip("kubernetes_asyncio")
life = pytest.importorskip("sandboxes.kubernetes.life")

pytestmark = pytest.mark.docker


async def test_the_watch_goes_on_after_its_place_is_gone(make, server, spec):
    async with make() as backend:
        server.gone_before = 10**9
        opening = asyncio.create_task(backend._acquire(Kind.of(spec), spec))
        await asyncio.sleep(1.0)
        server.gone_before = 0
        await (await opening).discard()
