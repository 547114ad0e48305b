"""Slots: how many starts go on at once, and what becomes of them when their backend is left."""

import asyncio

import pytest

from sandboxes.base import SandboxDied
from sandboxes.docker.slots import Slots


async def test_so_many_starts_go_on_at_once_and_the_next_waits():
    slots = Slots(2)
    async with slots:
        assert not slots.is_full
        async with slots:
            assert slots.is_full
            waiting = asyncio.create_task(slots.__aenter__())
            await asyncio.sleep(0)
            assert not waiting.done()
        await waiting
        await slots.__aexit__()
    assert not slots.is_full


async def test_closing_waits_for_starts_that_are_under_way_and_turns_others_away():
    slots = Slots(1)
    async with slots:
        closing = asyncio.create_task(slots.close())
        await asyncio.sleep(0)
        late = asyncio.create_task(slots.__aenter__())
        await asyncio.sleep(0)
        assert not closing.done()
        assert not slots.closed
    await closing
    for again in (late, slots.__aenter__()):
        with pytest.raises(SandboxDied, match="its backend was left"):
            await again
    async with slots.turn:
        assert slots.is_full, "removals go on"
    assert not slots.is_full
