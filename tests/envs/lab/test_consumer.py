"""The stand-in trainer on the real trainer API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from run_api import RunAPI
from samples import group
from waiting import until

from envs.lab.consumer import Batch, Consumer, ConsumerError


class Sender:
    """The least of an environment: registers once a trainer is there, and posts groups."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=10.0)
        self.env_id = -1

    async def register(self) -> None:
        body = {"max_token_length": 4096, "desired_name": "test", "weight": 1.0, "group_size": 4}
        while self.env_id < 0:
            answer = (await self._http.post("/register-env", json=body)).json()
            self.env_id = answer.get("env_id", -1)
            await asyncio.sleep(0.05)

    async def send(self, item: dict[str, Any]) -> None:
        (await self._http.post("/scored_data", json=item | {"env_id": self.env_id})).raise_for_status()

    async def reset(self) -> None:
        """Empty the API, which then knows neither trainer nor environment."""
        (await self._http.get("/reset_data")).raise_for_status()
        self.env_id = -1

    async def close(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def sending(url: str) -> AsyncIterator[Sender]:
    sender = Sender(url)
    try:
        yield sender
    finally:
        await sender.close()


async def pull(consumer: Consumer, n: int) -> list[Batch]:
    return [batch async for batch in consumer.batches(n)]


async def test_batches_are_pulled_from_the_real_api_and_every_row_is_checked(run_api: RunAPI) -> None:
    async with Consumer(run_api.url, batch_size=8, poll_s=0.2) as consumer, sending(run_api.url) as sender:
        pulling = asyncio.create_task(pull(consumer, 2))
        await sender.register()
        for number in range(3):
            await sender.send(group(name=f"g{number}"))
        bad = group(name="g3", rewards=(1.0, 1.0, 1.0, 1.0))
        bad["inference_logprobs"][1][17] = 0.5
        await sender.send(bad)
        batches = await asyncio.wait_for(pulling, 120)
    assert [batch.rows for batch in batches] == [8, 8]
    assert [problem for batch in batches for problem in batch.problems] == [
        "row 1: token 17 is trained with the impossible logprob 0.5"
    ]
    statistics = consumer.statistics
    assert (statistics.groups, statistics.groups_with_problems, statistics.groups_with_signal) == (4, 1, 3)
    assert (statistics.rows, statistics.good_rows, statistics.duplicates) == (16, 12, 0)
    assert statistics.score_mean == 0.5
    assert statistics.trained_tokens == 12 * len("Done.") + 12
    assert statistics.registrations == 1


async def test_a_group_delivered_twice_is_recognised(run_api: RunAPI) -> None:
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer, sending(run_api.url) as sender:
        pulling = asyncio.create_task(pull(consumer, 2))
        await sender.register()
        await sender.send(group())
        await sender.send(group())
        first, second = await asyncio.wait_for(pulling, 120)
    assert (first.duplicates, second.duplicates) == (0, 4)


async def test_a_restarted_api_is_registered_with_again(run_api: RunAPI) -> None:
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        batches = consumer.batches(2)
        async with sending(run_api.url) as sender:
            first = asyncio.ensure_future(anext(batches))
            await sender.register()
            await sender.send(group(name="before"))
            await asyncio.wait_for(first, 120)
        run_api.stop()
        second = asyncio.ensure_future(anext(batches))
        await until(lambda: consumer.statistics.api_errors > 0)
        await asyncio.to_thread(run_api.start)
        async with sending(run_api.url) as sender:
            await sender.register()
            await sender.send(group(name="after"))
            batch = await asyncio.wait_for(second, 120)
        assert batch.groups[0]["generation_params"]["rollout_ids"][0] == "after-0"
        assert consumer.statistics.registrations == 2
        await batches.aclose()


async def test_an_api_that_was_reset_is_registered_with_again(run_api: RunAPI) -> None:
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer, sending(run_api.url) as sender:
        pulling = asyncio.create_task(pull(consumer, 1))
        await sender.register()
        await sender.reset()
        await until(lambda: consumer.statistics.registrations == 2)
        await sender.register()
        await sender.send(group())
        assert len(await asyncio.wait_for(pulling, 120)) == 1


async def test_an_api_wedged_by_rows_that_came_too_early_is_freed(run_api: RunAPI) -> None:
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer, sending(run_api.url) as sender:
        sender.env_id = 0  # as an environment would that outlived an earlier run-api
        await sender.send(group(name="early"))
        sender.env_id = -1
        pulling = asyncio.create_task(pull(consumer, 1))
        await asyncio.wait_for(sender.register(), 30)
        await sender.send(group(name="late"))
        (batch,) = await asyncio.wait_for(pulling, 120)
    assert batch.groups[0]["generation_params"]["rollout_ids"][0] == "late-0"


async def test_an_api_that_is_not_there_yet_is_waited_for(run_api: RunAPI) -> None:
    run_api.stop()
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer, sending(run_api.url) as sender:
        pulling = asyncio.create_task(pull(consumer, 1))
        await until(lambda: "waiting for the trainer API" in consumer.statistics.state)
        await asyncio.to_thread(run_api.start)
        await sender.register()
        await sender.send(group())
        await asyncio.wait_for(pulling, 120)


async def test_another_trainers_api_is_refused(run_api: RunAPI) -> None:
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as first, Consumer(run_api.url, batch_size=8) as second:
        pulling = asyncio.create_task(pull(first, 1))
        await until(lambda: first.statistics.registrations == 1)
        with pytest.raises(ConsumerError, match="batch size 4, not 8"):
            await pull(second, 1)
        pulling.cancel()


async def test_a_server_that_is_no_trainer_api_is_named() -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(hello, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Consumer(f"http://127.0.0.1:{port}", batch_size=4) as consumer:
            with pytest.raises(ConsumerError, match="is it an Atropos API"):
                await pull(consumer, 1)
