"""Rollouts in Ray actors, on nodes that come and go. Needs Ray: pip install 'atropos-agent[ray]'."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from sums import fill, metrics_of, right

from envs.running.run import open_run

ray = pytest.importorskip("ray", reason="Ray is not installed")

TESTS = Path(__file__).parents[3]
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster():
    """A cluster of a head that makes no rollouts and one node that does."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(TESTS / "envs")])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        True, head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80_000_000}
    )
    cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(right, smollm2_tokenizer) as engine:
        yield engine


async def test_a_rollout_is_made_in_an_actor_and_judged(cluster, engine, make_env):
    env = make_env(group_size=4, workers="ray", ray={"address": cluster.address})
    async with open_run(env) as run, asyncio.timeout(120):
        group, wire = await fill(run)
    assert wire["scores"] == [1.0] * 4
    assert metrics_of(env).rollouts == 4
    assert not hasattr(env, "attempts"), "nothing of the environment was opened here"
