"""Faults between the environment and the real trainer API: each group arrives once, or is kept aside and counted."""

import asyncio
from collections import Counter

import pytest
from proxy import Proxy
from sums import metrics_of, right

from envs.delivery.sender import Sender
from envs.delivery.trainer_api import TrainerAPI
from envs.lab.consumer import Consumer
from envs.running.group import count_states
from envs.running.journal import Journal


@pytest.fixture
def policy():
    return right


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(Sender, "poll_s", 0.1)
    monkeypatch.setattr(Sender, "longest_pause_s", 1.0)
    monkeypatch.setattr(TrainerAPI, "poll_s", 0.1)


class Run:
    """An environment at work, and what a trainer has pulled of it."""

    def __init__(self, env, consumer):
        self.env, self.consumer = env, consumer
        self.numbers = Counter()

    async def __aenter__(self):
        self._serving = asyncio.create_task(self.env.env_manager())
        self._pulling = asyncio.create_task(self._pull())
        return self

    async def __aexit__(self, *exc):
        for task in (self._serving, self._pulling):
            task.cancel()
        await asyncio.gather(self._serving, self._pulling, return_exceptions=True)

    async def _pull(self):
        async for batch in self.consumer.batches():
            assert not batch.problems
            for group in batch.groups:
                assert set(group["scores"]) == {1.0}, "a fault of ours is no reward of 0"
                self.numbers[int(group["generation_params"]["group_id"].rpartition("-")[2])] += 1

    async def pulled(self, groups):
        """Wait until the trainer has that many groups in all."""
        async with asyncio.timeout(120):
            while self.numbers.total() < groups:
                for task in (self._serving, self._pulling):
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)

    def kept_aside(self):
        return {path.name.partition("-")[0] for path in (self.env.run_dir / "aside").glob("*")}


async def states(env):
    async with Journal(env.run_dir) as journal:
        return await count_states(journal)


async def check_accounts(run):
    """Groups in = groups out + groups that are counted with what became of them."""
    assert max(run.numbers.values()) == 1, "no group was delivered twice"
    counts = await states(run.env)
    # What may have been in a batch when the API died counts as uncertain, also where a trainer has it.
    assert counts["delivered"] + counts["uncertain"] >= len(run.numbers)
    known = {"working", "outbox", "delivered", "stale", "refused", "uncertain", "skipped"}
    assert set(counts) <= known
    first_open = max(run.numbers) + 1 - len(run.numbers)
    assert first_open <= counts.total() - len(run.numbers), "what was not pulled is counted otherwise"


OPTIONS = {"group_size": 2, "ensure_scores_are_not_same": False, "max_batches_offpolicy": 4}


FAULTS = [500, 503, 429, "refuse", "reset", "lost answer", "garbage", "truncate", "slow"]


async def test_deliveries_that_fail_are_tried_again_until_they_are_confirmed(make_env, run_api):
    async with Proxy(run_api.url) as proxy, Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        proxy.only = b"/scored_data"
        env = make_env(rollout_server_url=proxy.url, **OPTIONS)
        async with Run(env, consumer) as run:
            for fault in FAULTS:
                proxy.plan.extend([None, fault, None, fault, fault])
            while proxy.plan:
                await run.pulled(run.numbers.total() + 2)
            await run.pulled(run.numbers.total() + 4)
    await check_accounts(run)
    assert not run.kept_aside()


async def test_a_group_that_the_api_refuses_is_kept_aside_and_counted(make_env, run_api, caplog):
    async with Proxy(run_api.url) as proxy, Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        proxy.only = b"/scored_data"
        proxy.plan.extend([None, 422])
        env = make_env(rollout_server_url=proxy.url, **OPTIONS)
        async with Run(env, consumer) as run:
            await run.pulled(6)
    await check_accounts(run)
    assert (await states(env))["refused"] == 1
    assert run.kept_aside() == {"refused"}
    assert "kept in aside/" in caplog.text


async def test_an_api_that_is_killed_and_comes_back_empty_gets_every_group_that_no_batch_had(make_env, run_api):
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        env = make_env(rollout_server_url=run_api.url, **OPTIONS)
        async with Run(env, consumer) as run:
            await run.pulled(4)
            run_api.stop()
            await asyncio.sleep(2.0)
            run_api.start()
            await run.pulled(10)
    await check_accounts(run)


async def test_an_api_that_is_emptied_is_registered_with_again(make_env, run_api):
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        env = make_env(rollout_server_url=run_api.url, **OPTIONS)
        async with Run(env, consumer) as run:
            await run.pulled(4)
            await consumer._ask("GET", "/reset_data", parse=False)
            await run.pulled(10)
    await check_accounts(run)


async def test_groups_wait_on_disk_while_the_api_is_down_and_new_ones_stop_at_the_bound(make_env, run_api, monkeypatch):
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        env = make_env(rollout_server_url=run_api.url, **OPTIONS)
        async with Run(env, consumer) as run:
            await run.pulled(2)
            run_api.stop()
            await asyncio.sleep(4.0)
            made = metrics_of(env).groups
            await asyncio.sleep(1.0)
            assert metrics_of(env).groups <= made + env.config.max_num_workers
            run_api.start()
            await run.pulled(8)
    await check_accounts(run)


async def test_a_stale_group_is_kept_aside(make_env, run_api):
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        env = make_env(rollout_server_url=run_api.url, max_stale_steps=0, **OPTIONS)
        async with Run(env, consumer) as run:
            await run.pulled(12)
    await check_accounts(run)
    stale = (await states(env))["stale"]
    assert metrics_of(env).failures["trainer"] >= stale
    assert (run.kept_aside() == {"stale"}) == (stale > 0)
