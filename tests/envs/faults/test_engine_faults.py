"""Faults of inference engines: the run goes on, no token is lost or doubled, nothing is scored 0 for them."""

import asyncio
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
def policy():
    return right


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
    async with open_run(env) as run, asyncio.timeout(120):
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


async def test_a_model_that_is_gone_for_a_while_is_waited_for(engine, make_env):
    async with spoilt(engine) as proxy:
        proxy.plan.extend([None, None])
        proxy.always = 404
        env = make_env(proxy.url)
        making = asyncio.create_task(one_group(env))
        await asyncio.sleep(2.0)
        proxy.always = None
        await making
    assert not metrics_of(env).failures
    assert sum(env.attempts.values()) == 2, "the rollouts kept their sandboxes"


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

        class UpAgain(Sums):
            def failing(self, task, attempt):
                if attempt > 2:  # the third of the group: one was made again
                    proxy.always = None
                return False

        env = make_env(proxy.url, cls=UpAgain, rollout_timeout_s=6.0)
        await one_group(env)
    assert set(metrics_of(env).failures) == {"engine"}
    assert not metrics_of(env).stops["time"]


@pytest.mark.parametrize("fault", ["hang", "drip"])
async def test_an_engine_that_hangs_until_the_rollouts_time_is_over_though_it_lives_makes_no_grade(
    engine, make_env, monkeypatch, fault
):
    monkeypatch.setattr("atropos_agent.sampling.GRACE_S", 2.0)
    async with spoilt(engine) as proxy:
        proxy.plan.extend([None, None, fault, fault])
        env = make_env(proxy.url, rollout_timeout_s=2.0)
        await one_group(env)
    assert metrics_of(env).failures == {"engine": 2}
    assert set(metrics_of(env).stops) == {"answered"}
    assert engine.requests <= 6, "the replies before the hang were not sampled again"


async def test_an_engine_that_stalls_takes_no_time_from_the_rollout(engine, make_env):
    async with spoilt(engine) as proxy:
        proxy.always = "stall"
        env = make_env(proxy.url, rollout_timeout_s=4.0)
        await one_group(env)
    assert not metrics_of(env).failures
    assert set(metrics_of(env).stops) == {"answered"}


@pytest.mark.parametrize("fault", [500, 400, "refuse", "wrong ids"])
async def test_beside_a_sick_engine_the_others_do_its_work(engine, make_env, fault):
    async with spoilt(engine) as sick, spoilt(engine) as well:
        sick.always = fault
        env = make_env(sick.url, well.url)
        await one_group(env)
    assert not metrics_of(env).failures
    assert well.requests >= 4


async def test_a_systematic_refusal_slows_the_run_down_loudly_and_burns_no_task(engine, make_env, caplog):
    async with spoilt(engine) as proxy:
        env = make_env(proxy.url, attempts=1, task_failures=5, total_steps=60)
        making = asyncio.create_task(process_groups(env))
        while proxy.requests < 24:  # noqa: ASYNC110 - once something has worked, what is refused may pass
            await asyncio.sleep(0.01)
        proxy.always = 400
        async with asyncio.timeout(120):
            while "had infrastructure failures (engine:" not in caplog.text:  # noqa: ASYNC110 - a look is enough
                await asyncio.sleep(0.01)
            few = False
            while not few:  # what was under way comes to its end
                refused = proxy.requests
                await asyncio.sleep(3.0)
                few = proxy.requests - refused < 6
        assert not (env.run_dir / "quarantined.jsonl").exists()
        proxy.always = None
        async with asyncio.timeout(120):
            await making
        assert metrics_of(env).groups >= 60
    assert "rollouts succeed again" in caplog.text


async def started(engine, make_env, **options):
    """An environment whose servers have said what they serve, as at the start of a command."""
    env = make_env(engine.url.removesuffix("/v1"), **options)
    for server in env.servers:
        await server.connect()
    return env


@pytest.mark.parametrize("known", [True, False], ids=["told its window", "told nothing"])
async def test_an_engine_that_comes_back_with_a_smaller_window_ends_no_rollout(engine, make_env, known):
    env = await started(engine, make_env, attempts=1) if known else make_env(engine.url, attempts=1)
    async with open_run(env) as run, asyncio.timeout(120):
        await fill(run)
        engine.window = 600
        group, wire = await fill(run)
        assert wire is None, "a conversation that was cut short by us is not graded"
        engine.window = 32768
        _, wire = await fill(run, group)
    assert wire["scores"] == [1.0, 1.0]
    assert metrics_of(env).failures == {"engine": 2}
    assert set(metrics_of(env).stops) == {"answered"}


async def test_an_engine_that_cuts_replies_short_by_a_limit_of_its_own_makes_no_grade(engine, make_env):
    def cut(number, choice):
        if number == 2:
            choice["token_ids"] = choice["token_ids"][:1]
            choice["logprobs"]["token_logprobs"] = choice["logprobs"]["token_logprobs"][:1]
            choice["finish_reason"] = "length"

    engine.edit = cut
    env = await started(engine, make_env)
    await one_group(env)
    assert metrics_of(env).failures == {"engine": 1}


async def test_beside_an_engine_whose_window_has_shrunk_another_does_its_work(engine, make_env, smollm2_tokenizer):
    with ScriptedEngine(right, smollm2_tokenizer) as small:
        env = make_env(small.url, engine.url)
        for server in env.servers:
            await server.connect()
        small.window = 600
        await one_group(env)
    assert not metrics_of(env).failures


async def test_replies_from_before_a_restart_with_a_smaller_window_are_not_gone_on_with(engine, make_env):
    def lose_the_second(number, choice):
        if number == 2:
            choice["finish_reason"] = "content_filter"

    engine.edit = lose_the_second
    env = await started(engine, make_env, attempts=1, group_size=1)
    async with open_run(env) as run:
        assert (await fill(run))[1] is None
    engine.edit = lambda _number, _choice: None
    engine.window = 30000
    env = await started(engine, make_env, attempts=1, group_size=1)
    async with open_run(env) as run:
        assert (await fill(run))[1]["scores"] == [1.0]
    assert engine.requests == 4, "a reply that had more room than there is now is no start of this rollout"


async def test_a_model_that_fills_the_window_is_graded(engine, make_env):
    engine.window = 800
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "1+1"}}</tool_call>'
    engine.policy = lambda _: call
    env = await started(engine, make_env, group_size=1, max_steps=50)
    async with open_run(env) as run, asyncio.timeout(120):
        _, wire = await fill(run)
    assert wire["scores"] == [0.0]
    assert metrics_of(env).stops == {"max_tokens": 1}
    assert not metrics_of(env).failures
