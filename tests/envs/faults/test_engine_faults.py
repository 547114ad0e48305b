"""Faults of inference engines: the run goes on, no token is lost or doubled, nothing is scored 0 for them."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from proxy import Proxy
from scripted_engine import ScriptedEngine
from sums import Sums, fill, metrics_of, right

from atropos_agent.engines.completions import CompletionsServer
from envs.config import AgentEnvConfig
from envs.delivery.row_check import check_group
from envs.options import EngineConfig
from envs.running.commands import process_groups
from envs.running.run import open_run


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(right, smollm2_tokenizer) as engine:
        yield engine


@pytest.fixture
def make_env(tokenizer_folder, tmp_path):
    def make(*urls, cls=Sums, **options):
        values = {"group_size": 2, "tokenizer_name": tokenizer_folder, "run_dir": tmp_path / "run", **options}
        engines = [EngineConfig(base_url=url, model_name="scripted") for url in urls]
        return cls(AgentEnvConfig(**values), engines)

    return make


@asynccontextmanager
async def spoilt(engine):
    async with Proxy(engine.url) as proxy:
        proxy.only = b"/v1/completions"
        yield proxy


async def one_group(env):
    """A group, each of whose rollouts is two replies, the second of them the truth."""
    async with open_run(env) as run, asyncio.timeout(60):
        _, wire = await fill(run)
    assert wire is not None
    assert check_group(wire) == []
    assert wire["scores"] == [1.0, 1.0], "a fault of ours is no reward of 0"
    first, second = wire["tokens"]
    assert first == second, "no token is lost or doubled"


@pytest.mark.parametrize("fault", [500, 502, 503, 429, "refuse", "reset", "truncate", "garbage", "lost answer", "slow"])
async def test_a_request_that_fails_is_sent_again_with_the_same_ids(engine, make_env, fault):
    async with spoilt(engine) as proxy:
        proxy.plan.extend([None, fault, fault])
        env = make_env(proxy.url)
        await one_group(env)
    assert not metrics_of(env).failures, "the rollouts themselves went on"
    assert sum(env.attempts.values()) == 2


async def test_an_engine_that_hangs_with_its_connections_open_is_noticed(engine, make_env, monkeypatch):
    monkeypatch.setattr(CompletionsServer, "probe_s", 0.5)
    monkeypatch.setattr(CompletionsServer, "alive_s", 3.0)
    async with spoilt(engine) as proxy:
        proxy.only, proxy.always = b"", "hang"
        env = make_env(proxy.url)
        making = asyncio.create_task(one_group(env))
        await asyncio.sleep(2.0)
        proxy.always = None
        await making
    assert not metrics_of(env).failures


async def test_a_request_that_is_never_answered_fails_and_the_rollout_is_repeated_up_to_there(engine, make_env):
    async with spoilt(engine) as proxy:
        proxy.plan.extend([None, None, "hang"])
        env = make_env(proxy.url, request_timeout_s=2.0)
        await one_group(env)
    assert metrics_of(env).failures == {"engine": 1}
    assert engine.requests == 4, "the reply before the hang was not sampled again"


async def test_an_answer_to_other_ids_is_not_trained_on(engine, make_env):
    async with spoilt(engine) as proxy:
        proxy.plan.append("wrong ids")
        env = make_env(proxy.url)
        await one_group(env)
    assert metrics_of(env).failures == {"tokens": 1}


async def test_rollouts_wait_for_an_engine_that_restarts_and_its_downtime_is_not_their_time(engine, make_env):
    async with spoilt(engine) as proxy:
        proxy.plan.extend([None, None])
        proxy.always = "refuse"
        env = make_env(proxy.url, rollout_timeout_s=20.0)
        making = asyncio.create_task(one_group(env))
        await asyncio.sleep(4.0)
        proxy.always = None
        await making
    assert not metrics_of(env).failures
    assert sum(env.attempts.values()) == 2, "the rollouts kept their sandboxes"


async def test_an_engine_down_beyond_a_rollouts_time_is_a_failure_of_ours_and_no_grade(engine, make_env):
    async with spoilt(engine) as proxy:
        proxy.plan.extend([None, None])
        proxy.always = 503
        env = make_env(proxy.url, rollout_timeout_s=2.0)
        making = asyncio.create_task(one_group(env))
        await asyncio.sleep(3.0)
        proxy.always = None
        await making
    assert set(metrics_of(env).failures) == {"engine"}
    assert not metrics_of(env).stops["time"]


@pytest.mark.parametrize("fault", [500, 400, "refuse", "wrong ids"])
async def test_beside_a_sick_engine_the_others_do_its_work(engine, make_env, fault):
    async with spoilt(engine) as sick, spoilt(engine) as well:
        sick.always = fault
        env = make_env(sick.url, well.url)
        await one_group(env)
    assert not metrics_of(env).failures
    assert well.requests >= 4


@pytest.mark.long(25)
async def test_a_systematic_refusal_slows_the_run_down_loudly_and_burns_no_task(engine, make_env, caplog):
    async with spoilt(engine) as proxy:
        proxy.always = 400
        env = make_env(proxy.url, attempts=1, task_failures=5, total_steps=10)
        making = asyncio.create_task(process_groups(env))
        await asyncio.sleep(6.0)
        refused, started = proxy.requests, time.monotonic()
        await asyncio.sleep(3.0)
        rate = (proxy.requests - refused) / (time.monotonic() - started)
        assert rate < 2, "starts are spaced"
        assert "failed by our fault (engine:" in caplog.text
        assert not (env.run_dir / "quarantined.jsonl").exists()
        proxy.always = None
        async with asyncio.timeout(90):
            await making
        assert metrics_of(env).groups >= 10
    assert "rollouts succeed again" in caplog.text
