"""Rollouts in Ray actors, on nodes that come and go.

Needs Ray, which is not among the packages for development: `.venv/bin/pip install -c requirements.lock ray`, then
`./run test --all -k on_ray`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from sums import Sums, fill, metrics_of, right

from envs.config import RayOptions
from envs.records.read import read_rollouts
from envs.running.commands import CountPace
from envs.running.group import count_states
from envs.running.run import open_run
from envs.running.sinks import FileSink, open_group_file

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'atropos-agent[ray]'")
from ray.cluster_utils import Cluster  # noqa: E402

from envs.running.remote.messages import Gone  # noqa: E402
from envs.running.remote.on_ray import RayCluster  # noqa: E402

ROOT = Path(__file__).parents[4]
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}
# Ray leaves sockets and files to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster():
    """A cluster of a head that makes no rollouts and of two nodes that do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/envs"))))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            cluster.add_node(**NODE)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(right, smollm2_tokenizer, delay_s=0.5) as engine:
        yield engine


@pytest.fixture
def ray_env(cluster, make_env):
    """Makes an environment whose rollouts are made on the cluster."""
    return lambda cls=Sums, **options: make_env(cls, workers="ray", ray={"address": cluster.address}, **options)


async def until(what):
    while True:
        if what():
            return
        await asyncio.sleep(0.05)


def lives(run):
    """The processes that rollouts are given to, by node."""
    return {node: member.live for (node, _), member in run.rollouts._worker._members.items() if member.live}


async def test_rollouts_are_made_in_actors_and_come_back_judged(ray_env):
    env = ray_env(group_size=4)
    async with open_run(env) as run, asyncio.timeout(200):
        _, wire = await fill(run)
    assert wire["scores"] == [1.0] * 4
    assert metrics_of(env).tokens_sampled == sum(server.sampled for server in env.servers) > 0
    assert not hasattr(env, "attempts"), "nothing of the environment was opened here"


async def test_a_node_is_killed_and_one_joins_and_nothing_is_lost_or_double(cluster, ray_env, engine):
    env = ray_env(group_size=4)
    async with open_run(env) as run, asyncio.timeout(300):
        await until(lambda: len(lives(run)) == 2)
        sink = FileSink(run, await open_group_file(run, env.run_dir / "groups.jsonl"))
        making = asyncio.create_task(run.make_groups(CountPace(run, 25), sink, []))
        await until(lambda: all(live._making for live in lives(run).values()) and run.metrics.rollouts)
        before = set(lives(run))
        victim = next(iter(cluster.worker_nodes))
        await asyncio.to_thread(cluster.remove_node, victim, allow_graceful=False)
        await until(lambda: len(lives(run)) == 1)
        cluster.add_node(wait=False, **NODE)  # it sets signal handlers, which other threads may not
        await until(lambda: set(lives(run)) - before)
        engine.delay_s = 0.1
        await making
        counts = await count_states(run.journal)
    metrics = metrics_of(env)
    rollouts = list(read_rollouts(env.run_dir))
    assert counts == {"saved": 25}, "every group is complete, none twice"
    assert len({rollout.id for rollout in rollouts}) == len(rollouts) == metrics.rollouts == 100
    assert metrics.solved == 100, "no rollout is a zero by our fault"
    assert metrics.failures.keys() == {"worker"}, "and what the node had was counted"


async def test_an_actor_that_is_killed_is_followed_by_another(ray_env):
    env = ray_env(group_size=4)
    async with open_run(env) as run, asyncio.timeout(200):
        filling = asyncio.create_task(fill(run))
        await until(lambda: any(live._making for live in lives(run).values()))
        node, live = next((node, live) for node, live in lives(run).items() if live._making)
        await live.kill()
        _, wire = await filling
        await until(lambda: lives(run).get(node) not in (None, live))
    assert wire["scores"] == [1.0] * 4


async def test_no_secret_and_no_argument_is_in_what_ray_says_of_actors(cluster, ray_env):
    env = ray_env(group_size=1)
    env.servers[0].config.api_key = "the-secret-key"
    async with open_run(env) as run, asyncio.timeout(200):
        await fill(run)
        told = str(ray._private.state.actors()) + str(ray._private.state.jobs())
    assert "WorkerProcess" in told
    assert "the-secret-key" not in told


async def test_nodes_without_the_resources_are_left_out(cluster):
    async with RayCluster(RayOptions(address=cluster.address, resources={"docker": 1})) as found:
        assert await found.nodes() == []
        with pytest.raises(Gone, match="has left"):
            await found.start("10.0.0.1/abc")


async def test_a_cluster_that_is_not_there_is_named_with_the_remedy():
    with pytest.raises(ConnectionError, match="start one with `ray start --head`"):
        async with RayCluster(RayOptions(address="127.0.0.1:1")):
            pass
