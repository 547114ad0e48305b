"""A run with a teacher: rollouts are scored beside the others, and a dead teacher costs time alone."""

import asyncio

import pytest
from embedded_engine import engine as embedded
from proxy import Proxy
from sums import Sums, fill, right
from teacher_engine import LOGPROB, TeacherEngine
from waiting import until

from atropos_agent.cpu_engine.model import locate
from atropos_agent.engines import completions, teacher
from atropos_agent.engines.errors import NotThisServer
from atropos_agent.types import IGNORED
from envs.config import AgentEnvConfig
from envs.options import EngineConfig
from envs.records.read import read_rollouts
from envs.running.commands import evaluate_once
from envs.running.run import open_run


@pytest.fixture
def policy():
    return right


@pytest.fixture
def taught_by(smollm2_tokenizer):
    with TeacherEngine(smollm2_tokenizer) as engine:
        yield engine


async def test_rows_have_the_teachers_logprobs_and_the_reverse_kl_is_in_their_advantages(make_env, taught_by):
    env = make_env(group_size=2, teacher=taught_by.url, teacher_weight=2.0)
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert wire["scores"] == [1.0, 1.0], "the rewards say nothing"
    for masks, advantages, ids, logprobs in zip(
        wire["masks"], wire["advantages"], wire["distill_token_ids"], wire["distill_logprobs"], strict=True
    ):
        # The inference server's own logprobs are all -0.25.
        assert advantages == [0.0 if mask == IGNORED else 2.0 * (LOGPROB + 0.25) for mask in masks]
        assert [list(one) for one in ids] == [[] if mask == IGNORED else [mask] for mask in masks]
        assert [len(one) for one in logprobs] == [int(mask != IGNORED) for mask in masks]
    for rollout in read_rollouts(env.run_dir):
        assert rollout.result.segments[0].teacher is not None, "a later start scores nothing twice"


async def test_evaluations_are_not_scored(make_env, taught_by):
    await evaluate_once(make_env(teacher=taught_by.url))
    assert taught_by.requests == 0


@pytest.mark.parametrize("fault", [503, "refuse", "truncate"])
async def test_a_teacher_that_dies_and_comes_back_costs_time_alone(make_env, taught_by, monkeypatch, fault):
    monkeypatch.setattr(completions, "backoff_s", lambda doublings, most: 0.05)
    async with Proxy(taught_by.url) as proxy:
        env = make_env(group_size=2, teacher=f"{proxy.url}/v1")
        async with open_run(env) as run, asyncio.timeout(120):
            proxy.always = fault
            making = asyncio.create_task(fill(run))
            seen = proxy.requests
            await until(lambda: proxy.requests >= seen + 6)
            assert not making.done()
            proxy.always = None
            _, wire = await making
        assert all(map(any, wire["distill_logprobs"]))
        assert (run.metrics.rollouts, run.metrics.failures) == (2, {})


async def test_a_teacher_that_stays_away_is_an_infrastructure_failure_and_tried_again(make_env, taught_by, monkeypatch):
    monkeypatch.setattr(completions, "backoff_s", lambda doublings, most: 0.01)
    monkeypatch.setattr(teacher.TeacherServer, "question_s", 0.2)
    env = make_env(group_size=1, teacher=taught_by.url)
    async with open_run(env) as run, asyncio.timeout(120):
        taught_by.faults = [503] * 60
        making = asyncio.create_task(fill(run))
        await until(lambda: run.metrics.failures.get("teacher"))
        taught_by.faults.clear()
        _, wire = await making
    assert wire["distill_logprobs"] is not None
    assert run.metrics.rollouts == 1


async def test_a_teacher_with_another_window_ends_the_start(make_env, taught_by):
    taught_by.window = 100
    with pytest.raises(NotThisServer, match=r"the teacher at .* context window of 100"):
        async with open_run(make_env(teacher=taught_by.url)):
            raise AssertionError


@pytest.mark.engine
async def test_a_teacher_that_is_the_student_says_what_the_student_said(tmp_path):
    async with embedded("tiny", 2048) as url:
        config = AgentEnvConfig(
            group_size=2,
            tokenizer_name=str(locate("tiny")),
            run_dir=tmp_path,
            max_token_length=1500,
            max_reply_tokens=32,
            teacher=url,
            teacher_top_k=3,
        )
        env = Sums(config, [EngineConfig(base_url=url)])
        await env.servers[0].connect()
        async with open_run(env) as run:
            _, wire = await fill(run)
    told = wire["generation_params"]["teacher_logprobs"]
    for masks, own, theirs in zip(wire["masks"], wire["inference_logprobs"], told, strict=True):
        sampled = [value for value, mask in zip(own, masks, strict=True) if mask != IGNORED]
        assert theirs == pytest.approx(sampled, abs=1e-4)
    assert {len(one) for row in wire["distill_token_ids"] for one in row} == {0, 3}
