"""Rollouts of a run are made by workers that come and go: each once, whatever happens to its worker."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from stand_in import StandInCluster
from sums import Sums, right
from waiting import until

from envs.running.journal import Journal
from envs.running.remote import live as live_module
from envs.running.remote import member as member_module
from envs.running.remote import outbound as outbound_module
from envs.running.remote import pool as pool_module
from envs.running.remote.pool import Pool, start_message_of
from envs.running.replay import TurnRecording
from envs.types import Failure, InfraError, Seat, Task
from sandboxes.base import SandboxDied

TASKS = [Task(f"sum-{n}", f"What is {n} + {n}?") for n in range(40)]


class Placed(Sums):
    """Sums that know on which node they are made."""

    made: ClassVar[Counter] = Counter()
    """Rollouts that were begun, by node."""
    broken: ClassVar[set] = set()
    """Nodes on which all fail."""
    gate = None
    """What rollouts wait for, after their replies."""

    async def attempt(self, task, seat):
        Placed.made[self.node] += 1
        if self.node in self.broken:
            raise SandboxDied("no Docker daemon")
        outcome = await super().attempt(task, seat)
        if self.gate is not None:
            await self.gate.wait()
        return outcome


@pytest.fixture
def policy():
    return right


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(pool_module, "LOOK_S", 0.05)
    monkeypatch.setattr(outbound_module, "GATHER_S", 0.01)
    monkeypatch.setattr(member_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(member_module, "FIRST_REST_S", 0.01)
    monkeypatch.setattr(live_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(Placed, "made", Counter())
    monkeypatch.setattr(Placed, "broken", set())
    monkeypatch.setattr(Placed, "gate", None)


@pytest.fixture
def opened(make_env):
    """Opens a pool over the machines of a cluster, for half a minute at most."""

    @asynccontextmanager
    async def opened(cluster, most=8, **options):
        opening = await start_message_of(make_env(Placed))
        async with asyncio.timeout(120), Pool(cluster, opening, each=1, most=most, **options) as pool:
            yield pool

    return opened


def waiting(n):
    """Let rollouts wait, and tell when so many have begun."""
    Placed.gate = asyncio.Event()
    return until(lambda: Placed.made.total() >= n)


async def ready(pool, workers):
    await until(lambda: sum(member.live is not None for member in pool._members.values()) == workers)


def all_of(pool, tasks=TASKS, seat=Seat):
    return asyncio.gather(*(pool.run(task, Seat(n, 0)) for n, task in enumerate(tasks)))


async def test_rollouts_are_made_on_all_nodes_and_come_back_judged(opened):
    cluster, sampled = StandInCluster("a", "b"), []
    async with opened(cluster, most=20, sampled=sampled.append) as pool:
        await ready(pool, 2)
        begun = waiting(40)
        making = asyncio.ensure_future(all_of(pool))
        await begun
        Placed.gate.set()
        rollouts = await making
        await until(lambda: sum(map(sum, sampled)) == sum(rollout.result.sampled_tokens for rollout in rollouts))
    assert [rollout.task for rollout in rollouts] == TASKS
    assert [rollout.seat for rollout in rollouts] == [Seat(n, 0) for n in range(40)]
    assert {rollout.verdict.reward for rollout in rollouts} == {1.0}
    assert Placed.made == {"a": 20, "b": 20}
    assert cluster.closed


async def test_a_worker_that_has_the_task_gets_it_again_while_it_is_not_much_busier(opened):
    async with opened(StandInCluster("a", "b"), most=8) as pool:
        await ready(pool, 2)
        begun = waiting(4)
        making = asyncio.gather(*(pool.run(TASKS[0], Seat()) for _ in range(4)))
        await begun
        Placed.gate.set()
        await making
    assert sorted(Placed.made.values()) == [1, 3], "until it is busier by a quarter of its room"


async def test_a_lost_worker_costs_no_rollout_no_attempt_and_no_reply(opened, engine, tmp_path):
    cluster, lost = StandInCluster("a", "b"), []
    async with Journal(tmp_path / "run", lambda: False) as journal, opened(cluster, most=20, lost=lost.append) as pool:
        await ready(pool, 2)
        begun = waiting(20)
        seats = [Seat(n, 0, recording=TurnRecording(journal, n, 0)) for n in range(20)]
        making = asyncio.gather(*(pool.run(task, seat) for task, seat in zip(TASKS[:20], seats, strict=True)))
        await begun
        await until(lambda: engine.requests == 40)
        while True:
            if sum([len(await journal.turns(n, 0)) for n in range(20)]) == 40:
                break
            await asyncio.sleep(0.01)
        on_a = Placed.made["a"]
        await cluster.remove("a")
        await until(lambda: Placed.made["b"] == 20)
        Placed.gate.set()
        rollouts = await making
    assert (lost, Placed.made.total()) == ([on_a], 20 + on_a)
    assert len({rollout.id for rollout in rollouts}) == 20
    assert {rollout.verdict.reward for rollout in rollouts} == {1.0}
    assert engine.requests == 40, "those on the lost worker were given again"


async def test_a_worker_that_dies_is_followed_by_another_on_its_node(opened):
    cluster = StandInCluster("a")
    async with opened(cluster) as pool:
        begun = waiting(3)
        making = asyncio.ensure_future(all_of(pool, TASKS[:3]))
        await begun
        await cluster.links["a"].lose()
        await until(lambda: Placed.made["a"] == 6)
        Placed.gate.set()
        assert len(await making) == 3
    assert cluster.opened["a"] == 2


async def test_a_node_that_joins_gets_rollouts_that_wait(opened):
    cluster = StandInCluster("a")
    async with opened(cluster, most=2) as pool:
        begun = waiting(2)
        making = asyncio.ensure_future(all_of(pool, TASKS[:4]))
        await begun
        cluster.names.append("b")
        await until(lambda: Placed.made["b"] == 2)
        Placed.gate.set()
        assert len(await making) == 4


async def test_answers_that_are_lost_cost_no_rollout_and_double_none(opened):
    cluster = StandInCluster("a")
    async with opened(cluster) as pool:
        begun = waiting(3)
        making = asyncio.ensure_future(all_of(pool, TASKS[:3]))
        await begun
        cluster.links["a"].cut = True
        Placed.gate.set()
        told = cluster.links["a"].calls["news"]
        await until(lambda: cluster.links["a"].calls["news"] > told)
        cluster.links["a"].cut = False
        assert len({rollout.id for rollout in await making}) == 3
    assert Placed.made["a"] == 3


async def test_a_node_where_all_fails_does_not_draw_the_rollouts_of_the_others(opened):
    async with opened(StandInCluster("a", "b"), most=40) as pool:
        await ready(pool, 2)
        Placed.broken = {"a"}
        found = []
        for task in TASKS:
            try:
                found.append((await pool.run(task, Seat())).verdict.reward)
            except InfraError as error:
                assert error.kind is Failure.SANDBOX
                assert "(on a)" in str(error)
    # It is tried again now and then, by the clock; by chance it would have had every second one.
    assert len(found) == Placed.made["b"] > 25


async def test_a_rollout_that_ends_its_workers_fails_in_the_end(opened):
    cluster = StandInCluster("a")
    async with opened(cluster) as pool:
        Placed.gate = asyncio.Event()
        making = asyncio.ensure_future(pool.run(TASKS[0], Seat()))
        for n in range(1, pool_module.MOVES + 1):
            await until(lambda n=n: Placed.made["a"] == n)
            await cluster.links["a"].lose()
        with pytest.raises(InfraError, match="worker: the worker was lost 4 times"):
            await making


async def test_a_cancelled_rollout_ends_on_its_worker_too(opened):
    cluster = StandInCluster("a")
    async with opened(cluster) as pool:
        begun = waiting(1)
        making = asyncio.ensure_future(pool.run(TASKS[0], Seat()))
        await begun
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        await until(lambda: not cluster.links["a"].process._rollouts)


async def test_what_does_not_pass_on_any_node_ends_the_start(opened, monkeypatch):
    monkeypatch.setattr(pool_module, "PACKAGE_VERSION", "0.0.1")
    with pytest.raises(InfraError, match=r"is installed there, and 0\.0\.1 at the driver \(on [ab]\)"):
        async with opened(StandInCluster("a", "b")):
            pass


async def test_a_cluster_without_a_node_is_waited_for(opened, monkeypatch, caplog):
    monkeypatch.setattr(pool_module, "REMIND_S", 0.01)
    cluster = StandInCluster()

    async def join():
        await until(lambda: "no node of the cluster has what --env.ray.resources" in caplog.text)
        cluster.names.append("a")

    joining = asyncio.ensure_future(join())
    async with opened(cluster) as pool:
        assert (await pool.run(TASKS[0], Seat())).verdict.reward == 1.0
    await joining


async def test_a_cluster_without_a_node_is_waited_for_no_longer_than_that(opened, monkeypatch):
    monkeypatch.setattr(pool_module, "PATIENCE_S", 0.05)
    cluster = StandInCluster()
    with pytest.raises(
        ConnectionError, match=r"no worker was ready .*: no node .* what --env\.ray\.resources asks for"
    ):
        async with opened(cluster):
            pass
    assert cluster.closed
