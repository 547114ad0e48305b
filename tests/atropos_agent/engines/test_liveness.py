"""An answer is awaited while the server lives."""

import asyncio

import pytest

from atropos_agent.engines.errors import EngineDown
from atropos_agent.engines.liveness import cancel_when_dead


class Server:
    """Says whether it lives: as often as it does, then that it does not."""

    label = "the server"

    def __init__(self, times):
        self.left = times
        self.requests = 0

    async def alive(self):
        self.requests += 1
        self.left -= 1
        return self.left >= 0


async def answer(seconds):
    await asyncio.sleep(seconds)
    return "answer"


async def test_what_answers_soon_is_not_asked_whether_it_lives():
    server = Server(0)
    assert await cancel_when_dead(answer(0), server.alive, every_s=0.05, label=server.label) == "answer"
    assert server.requests == 0


async def test_what_is_slow_is_waited_for_while_it_lives_and_given_up_when_it_does_not():
    slow, hanging = Server(100), Server(2)
    assert await cancel_when_dead(answer(0.15), slow.alive, every_s=0.02, label=slow.label) == "answer"
    assert slow.requests > 1
    with pytest.raises(EngineDown, match="the server has stopped answering"):
        await cancel_when_dead(answer(60), hanging.alive, every_s=0.02, label=hanging.label)
    assert hanging.requests == 3


async def test_nothing_is_asked_any_more_once_the_answer_is_not_wanted():
    server = Server(100)
    waiting = asyncio.create_task(cancel_when_dead(answer(60), server.alive, every_s=0.01, label=server.label))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.wait({waiting})
    before = server.requests
    await asyncio.sleep(0.05)
    assert server.requests == before
    assert len(asyncio.all_tasks()) == 1
