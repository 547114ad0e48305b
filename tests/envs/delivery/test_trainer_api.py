"""Rows through the real trainer API: rollouts of several segments beside others of one."""

import asyncio
import gzip
import math
import random

import httpx
import pytest
from row_samples import TASK, rollout, sent

from atropos_agent.types import IGNORED
from envs.delivery.packing import RowPacker
from envs.delivery.rows import Origin, score_group
from envs.delivery.trainer_api import NotTrainerAPIError, TrainerAPI
from envs.lab.consumer import Consumer

SIZE, BATCH = 4, 8


@pytest.fixture
def groups():
    """Twelve groups of four members with 1 to 4 segments; rows of three more than fill batches."""
    rng = random.Random(5)
    made = []
    for g in range(12):
        cut = [rng.choice([1, 1, 2, 3, 4]) if g % 3 else 1 for _ in range(SIZE)]
        members = [
            rollout(
                float(i % 2), segments, f"g{g}r{i}", turn_advantages=(0.25,) * segments if g == 4 and i == 0 else ()
            )
            for i, segments in enumerate(cut)
        ]
        made.append(score_group(members, Origin(g, f"g{g}", TASK.id, step=g)))
    return made


async def through_the_api(url, groups):
    """Send the groups as an environment does. Returns the rows that a trainer gets, and how many still wait."""
    packer, rows, packed, waiting = RowPacker(SIZE), [], [], []
    for group in groups:
        packets, waiting = packer.add(group, step=0)
        packed += map(sent, packets)
    async with (
        httpx.AsyncClient(base_url=url, timeout=60) as http,
        Consumer(url, batch_size=BATCH, poll_s=0.2) as trainer,
    ):
        pulled = trainer.batches()
        first = asyncio.ensure_future(anext(pulled))
        env = {"max_token_length": 99, "desired_name": "g", "weight": 1.0, "group_size": SIZE}
        while (answer := (await http.post("/register-env", json=env)).json())["status"] != "success":  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        for group in packed:
            body = {**group, "env_id": answer["env_id"]}
            assert (await http.post("/scored_data", json=body)).json()["status"] == "received"
        batches = [await first]
        for _ in range(len(packed) * SIZE // BATCH - 1):
            batches.append(await asyncio.wait_for(anext(pulled), 30))
    for batch in batches:
        assert not batch.problems
        assert batch.rows == BATCH
        for group in batch.groups:
            params = group["generation_params"]
            rows += [
                {
                    "rollout": params["rollout_ids"][i],
                    "segment": params["segments"][i],
                    "version": params["policy_versions"][i],
                    "group": group,
                    "place": i,
                }
                for i in range(len(group["tokens"]))
            ]
    return rows, len(waiting)


async def test_every_row_reaches_a_batch_and_each_member_counts_once(run_api, groups):
    rows, waiting = await through_the_api(run_api.url, groups)
    made = {(row.rollout_id, row.segment) for group in groups for row in group.rows}
    arrived = [(row["rollout"], row["segment"]) for row in rows]
    assert len(set(arrived)) == len(arrived)
    assert set(arrived) <= made
    # What does not fill a batch yet waits: less than a group here and less than a batch there.
    assert len(made) - len(arrived) <= waiting + BATCH - SIZE
    assert waiting < SIZE

    complete = {row["rollout"] for row in rows} - {r for r, s in made - set(arrived)}
    weights = dict.fromkeys(complete, 0.0)
    for row in rows:
        group, i = row["group"], row["place"]
        tokens, mask, logprobs = (group[key][i] for key in ("tokens", "masks", "inference_logprobs"))
        assert [p for p, m in zip(logprobs, mask, strict=True) if m != IGNORED] == [-0.5] * (len(tokens) - 1)
        if group["advantages"] is not None:
            trained = [a for a, m in zip(group["advantages"][i], mask, strict=True) if m != IGNORED]
            own = math.fsum(trained) / len(trained)
        else:
            mean = sum(group["scores"]) / len(group["scores"])
            own = (group["scores"][i] - mean) / 0.5
        if row["rollout"] in weights:
            weights[row["rollout"]] += own
    for name, weight in weights.items():
        reward = float(int(name[-1]) % 2)
        extra = 0.25 if name == "g4r0" else 0.0
        assert weight == pytest.approx((reward - 0.5) / 0.5 + extra), name


async def test_nothing_is_sent_to_who_has_taken_the_place_of_the_one_that_answered(run_api):
    group = b'"tokens":[[1,2]],"masks":[[1,2]],"scores":[1.0],"generation_params":{"delivery_id":"it"}}'
    async with TrainerAPI(run_api.url) as api, Consumer(run_api.url, batch_size=4) as trainer:
        assert (await api.latest(), await api.latest()) == (None, None)
        run_api.stop()
        run_api.start()
        pulled = asyncio.ensure_future(anext(trainer.batches()))
        while not trainer.statistics.registrations:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        with pytest.raises(httpx.ConnectError, match="another may answer"):
            await api.send(0, gzip.compress(group))
        assert (await api.latest(), await api.latest()) == (None, None)
        await api.send(0, gzip.compress(group))
        assert await api.latest() == "it", "who has answered may have it"
        pulled.cancel()


class TestWhoAnswers:
    """An address that names something else ends the start; a trainer API that is gone for a while does not."""

    @staticmethod
    async def info(url):
        async with TrainerAPI(url) as api:
            api.poll_s, api.strange_answers = 0.01, 5
            return await asyncio.wait_for(api.info(), 10)

    @pytest.mark.parametrize(
        ("status", "body", "said"),
        [
            (404, "Not Found", "404 Not Found"),
            (401, "who are you?", "401 who are you?"),
            (200, "<html>hello</html>", "<html>hello</html>"),
            (200, "{}", "which no Atropos API does"),
        ],
    )
    async def test_what_is_no_trainer_api_is_told_with_the_remedy(self, httpserver, status, body, said):
        httpserver.expect_request("/info").respond_with_data(body, status)
        with pytest.raises(NotTrainerAPIError, match=r"--env\.rollout_server_url") as raised:
            await self.info(httpserver.url_for("/"))
        assert said in str(raised.value)

    @pytest.mark.parametrize("status", [429, 500, 502, 503])
    async def test_one_that_is_busy_or_starting_is_waited_for(self, httpserver, status):
        for _ in range(20):
            httpserver.expect_ordered_request("/info").respond_with_data("not yet", status)
        httpserver.expect_ordered_request("/info").respond_with_json({"batch_size": 8, "max_token_len": 512})
        assert (await self.info(httpserver.url_for("/"))).batch_size == 8

    async def test_one_that_has_answered_before_is_waited_for_whatever_answers_now(self, httpserver):
        httpserver.expect_ordered_request("/info").respond_with_json({"batch_size": -1, "max_token_len": 512})
        httpserver.expect_ordered_request("/status").respond_with_json({"queue_size": 0})
        for _ in range(20):
            httpserver.expect_ordered_request("/info").respond_with_data("no such host here", 404)
        httpserver.expect_ordered_request("/info").respond_with_json({"batch_size": 8, "max_token_len": 512})
        assert (await self.info(httpserver.url_for("/"))).batch_size == 8
