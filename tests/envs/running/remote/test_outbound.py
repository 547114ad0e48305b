"""News wait until the driver has them."""

import asyncio
import logging

import pytest

from envs.records.redaction import Redactor
from envs.running.remote import outbound as outbound_module
from envs.running.remote.messages import PIECE, RolloutPiece, Turn, WorkerLogRecord
from envs.running.remote.outbound import ForwardingHandler, Outbound


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(outbound_module, "GATHER_S", 0.01)


async def test_news_are_told_again_until_they_have_arrived():
    outbound = Outbound()
    for body in (b"a", b"b"):
        outbound.add(Turn(1, body))
    both = [(1, Turn(1, b"a")), (2, Turn(1, b"b"))]
    assert await outbound.after(0) == both
    assert await outbound.after(0) == both, "the answer was lost"
    assert await outbound.after(1) == both[1:]


async def test_one_answer_holds_no_more_than_a_message():
    outbound = Outbound()
    for _ in range(3):
        outbound.add(RolloutPiece(1, bytes(PIECE), False))
    assert [[number for number, _ in await outbound.after(n)] for n in range(3)] == [[1], [2], [3]]


async def test_nothing_new_is_told_after_a_while(monkeypatch):
    monkeypatch.setattr(outbound_module, "WAIT_S", 0.01)
    outbound = Outbound()
    outbound.add(Turn(1, b"a"))
    await outbound.after(0)
    assert await outbound.after(1) == []


async def test_what_is_logged_is_told_without_secrets_from_any_thread():
    outbound = Outbound()
    told = ForwardingHandler(outbound, Redactor(["the-secret-key"]))
    logger = logging.Logger("some.module")
    logger.addHandler(told)
    await asyncio.to_thread(logger.warning, "it is %s", "the-secret-key")
    assert await outbound.after(0) == [(1, WorkerLogRecord("some.module", logging.WARNING, "it is ***"))]


async def test_a_flood_of_lines_is_counted_and_left_out():
    outbound = Outbound()
    for n in range(outbound_module._MOST_LOGGED + 7):
        outbound.add(WorkerLogRecord("a", logging.INFO, str(n)))
    outbound.add(Turn(1, b"a"))
    found, last = [], 0
    while not found or not isinstance(found[-1], WorkerLogRecord) or "left out" not in found[-1].text:
        news = await outbound.after(last)
        last = news[-1][0]
        found += [one for _, one in news]
    assert found[-1].text == "7 lines of the log were left out"
    assert Turn(1, b"a") in found
