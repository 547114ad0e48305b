"""Rollouts in Ray actors, on nodes that come and go.

Needs Ray, which is not among the packages for development: `.venv/bin/pip install -c requirements.lock ray`, then
`./run test --all -k on_ray`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from kills import check
from programs import run as run_program
from scripted_engine import ScriptedEngine
from stopwatch import Stopwatch
from sums import Sums, fill, metrics_of, right
from waiting import until

from envs.cli.checks import Status
from envs.config import RayOptions
from envs.lab.curve import Curve
from envs.options import EngineConfig
from envs.records.read import read_rollouts
from envs.running.commands import CountPace, evaluate_once
from envs.running.group import count_states
from envs.running.run import open_run
from envs.running.sinks import FileSink, open_group_file
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from envs.swe.nodes import examine_nodes

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'atropos-agent[ray]'")
from ray.cluster_utils import Cluster  # noqa: E402

from envs.running.remote.messages import WorkerGoneError  # noqa: E402
from envs.running.remote.on_ray import RayCluster  # noqa: E402

ROOT = Path(__file__).parents[4]
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}
# Ray leaves sockets and files to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore")]


def test_an_end_does_not_wait_for_a_cluster_that_can_not_be_joined(monkeypatch):
    joined = threading.Event()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: joined.wait(60))

    async def join():
        async with asyncio.timeout(0.1), RayCluster(RayOptions()):
            pass

    watch = Stopwatch()
    with pytest.raises(TimeoutError):
        asyncio.run(join())
    assert watch.seconds < 30
    joined.set()


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


def content(folder):
    """What is in all files of a folder."""
    return b"".join([path.read_bytes() for path in folder.rglob("*") if path.is_file()])


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


async def test_an_evaluation_is_made_on_the_nodes(ray_env):
    async with asyncio.timeout(200):
        summary = await evaluate_once(ray_env())
    assert (summary.pass_at[1].mean, summary.pass_at[1].tasks) == (1.0, 3)


async def test_a_node_is_killed_and_one_joins_and_nothing_is_lost_or_double(cluster, ray_env, engine):
    env = ray_env(group_size=4)
    async with open_run(env) as run, asyncio.timeout(300):
        await until(lambda: len(lives(run)) == 2)
        sink = FileSink(run, await open_group_file(run, env.run_dir / "groups.jsonl"))
        making = asyncio.create_task(run.make_groups(CountPace(run, 25), sink))
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
    assert metrics.solved == 100, "no rollout is a zero by an infrastructure failure"
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


async def test_a_driver_that_is_killed_goes_on_and_the_trainer_has_each_group_once(
    cluster, tokenizer_folder, smollm2_tokenizer, run_api, tmp_path
):
    place = ("--env.workers=ray", f"--env.ray.address={cluster.address}")
    with ScriptedEngine(right, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.05) as engine:
        await check(engine, run_api, tmp_path, 4, *place)


async def test_no_secret_is_in_what_ray_says_keeps_and_logs(cluster, ray_env):
    env = ray_env(group_size=1)
    env.servers[0].config.api_key = "the-secret-key"
    async with open_run(env) as run, asyncio.timeout(200):
        await fill(run)
        told = str(ray._private.state.actors()) + str(ray._private.state.jobs())
        gcs = ray._private.worker.global_worker.gcs_client
        spaces = [None, *(name.encode() for name in ("fun", "actors", "job", "cluster", "session"))]
        keys = [(space, key) for space in spaces for key in gcs.internal_kv_keys(b"", space)]
        kept = b"".join([key + (gcs.internal_kv_get(key, space) or b"") for space, key in keys])
        logged = content(Path(ray._private.worker.global_worker.node.get_session_dir_path()))
    assert "WorkerProcess" in told and b"WorkerProcess" in kept and logged
    assert "the-secret-key" not in told
    assert b"the-secret-key" not in kept + logged


async def test_the_doctor_measures_each_node_beside_a_run(cluster, ray_env, engine, base_image):
    async with open_run(ray_env(group_size=1)):  # whose workers have all processors
        config = SWEEnvConfig(workers="ray", ray={"address": cluster.address}, base_image=base_image)
        task = SWEEnv.load_tasks(config)[0][0]
        server = EngineConfig(base_url=engine.url, model_name="scripted")
        checks = [check async for check in examine_nodes(RayCluster(config.ray), config, [server], task)]
    assert len(checks) == 2
    assert {check.status for check in checks} == {Status.OK}, checks


async def test_the_smoke_preset_learns(cluster, tmp_path):
    """The environment of `learn` makes its rollouts on the cluster, and more is solved afterwards."""
    # The first evaluation goes on beside the environment, and a node has one processor for both.
    place = {"workers": "ray", "ray.address": cluster.address, "ray.rollouts": 16, "ray.resources": "CPU=0.5"}
    given = [word for name, value in place.items() for word in ("--env", f"{name}={value}")]
    command = ["-m", "envs.swe", "learn", "--preset", "smoke", "--run-dir", tmp_path / "run", *given]
    began = time.monotonic()
    done = await asyncio.to_thread(run_program, command, timeout=900)
    curve = Curve(tmp_path / "run")
    curve.read()
    before, after = (one.mean for one in curve.evaluations)
    print(f"{time.monotonic() - began:.0f} s, {before:.0%} before, {after:.0%} after")
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "run/environment.log").read_text().count("the worker on") >= 2
    assert after > before


async def test_nodes_without_the_resources_are_left_out(cluster):
    async with RayCluster(RayOptions(address=cluster.address, resources={"docker": 1})) as found:
        assert await found.nodes() == []
        with pytest.raises(WorkerGoneError, match="has left"):
            await found.start("10.0.0.1/abc")


async def test_sigterm_comes_to_our_handler_without_a_stack_of_rays(cluster, capfd):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(True))
    try:
        async with RayCluster(RayOptions(address=cluster.address)):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard
    assert "SIGTERM received" not in capfd.readouterr().err


async def test_a_cluster_that_is_not_there_is_named_with_the_remedy():
    with pytest.raises(ConnectionError, match="start one with `ray start --head`"):
        async with RayCluster(RayOptions(address="127.0.0.1:1")):
            pass
