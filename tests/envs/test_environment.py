"""The environment against the real trainer API and an engine over HTTP."""

import asyncio
from dataclasses import replace

import pytest
from sums import Sums, pulled

from envs.lab.consumer import Consumer
from envs.types import InfraError


async def test_groups_reach_the_trainer_with_their_logprobs(make_env, run_api):
    env = make_env(rollout_server_url=run_api.url)
    async with Consumer(run_api.url, batch_size=8, poll_s=0.1) as consumer:
        groups = await pulled(consumer, 4, env)
    assert all(len(group["tokens"]) == 4 for group in groups)
    assert all(len(set(group["scores"])) > 1 for group in groups), "groups without signal are not sent"
    assert consumer.statistics.groups_with_problems == 0
    for group in groups:
        for tokens, mask, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
            assert [p for p, m in zip(logprobs, mask, strict=True) if m != -100] == [-0.25] * sum(
                m == t for m, t in zip(mask, tokens, strict=True)
            )


async def test_a_member_that_fails_by_our_fault_is_tried_again_and_never_scored(make_env, run_api):
    class Flaky(Sums):
        def failing(self, task, attempt):
            return attempt % 5 == 1

    env = make_env(Flaky, rollout_server_url=run_api.url, ensure_scores_are_not_same=False)
    async with Consumer(run_api.url, batch_size=4, poll_s=0.1) as consumer:
        groups = await pulled(consumer, 3, env)
    assert all(len(group["tokens"]) == 4 for group in groups)
    assert env.metrics.failures["sandbox"] > 0
    assert env.metrics.rollouts >= 12


async def test_a_row_that_is_not_what_was_recorded_is_not_sent_and_is_counted(make_env, run_api):
    class Careless(Sums):
        async def attempt(self, task, *, evaluating=False):
            first = not self.attempts[task.id]
            outcome = await super().attempt(task, evaluating=evaluating)
            if not first:
                return outcome
            (row,) = outcome.result.segments
            spoilt = replace(row, tokens=[row.tokens[0] + 1, *row.tokens[1:]])
            return replace(outcome, result=replace(outcome.result, segments=(spoilt,)))

    env = make_env(Careless, rollout_server_url=run_api.url, ensure_scores_are_not_same=False)
    async with Consumer(run_api.url, batch_size=4, poll_s=0.1) as consumer:
        groups = await pulled(consumer, 3, env)
    assert env.metrics.failures["row"] >= 3, "one in each group"
    assert all(row[0] == 1 for group in groups for row in group["tokens"]), "<|im_start|>, as it was sent"


async def test_a_group_that_can_not_be_completed_keeps_its_good_members_for_the_next_time(make_env):
    class OneDown(Sums):
        def failing(self, task, attempt):
            return 3 < attempt <= 5

    env = make_env(OneDown, attempts=1)
    async with env.running():
        draw = await env.get_next_item()
        task = draw.task
        group, (draw,) = await env.collect_trajectories(draw)
        assert group is None
        assert len(draw.members) == 3
        assert env.attempts[task.id] == 4
        group, (draw,) = await env.collect_trajectories(draw)
        assert group is None, "the fifth attempt fails too"
        group, put_back = await env.collect_trajectories(draw)
        assert not put_back
        assert len(group["tokens"]) == 4
        assert env.attempts[task.id] == 6


async def test_a_task_that_always_fails_by_our_fault_is_set_aside_and_the_others_go_on(make_env, run_api):
    class Broken(Sums):
        def failing(self, task, attempt):
            return task.id == "sum-1"

    env = make_env(
        Broken, rollout_server_url=run_api.url, ensure_scores_are_not_same=False, attempts=1, task_failures=1
    )
    async with Consumer(run_api.url, batch_size=4, poll_s=0.1) as consumer:
        groups = await pulled(consumer, 8, env)
    assert "sum-1" not in {group["generation_params"]["task_id"] for group in groups}
    assert env.attempts["sum-1"] == 4


async def test_when_every_task_fails_by_our_fault_the_run_ends_with_the_reason(make_env):
    class AllBroken(Sums):
        def failing(self, task, attempt):
            return True

    env = make_env(AllBroken, attempts=1, task_failures=1)
    env.n_groups_to_process, env.group_size_to_process = 1, 2
    with pytest.raises(InfraError, match="every task was set aside"):
        await env.process_manager()


async def test_the_trainer_api_may_come_up_later(make_env, run_api, caplog):
    run_api.stop()
    env = make_env(rollout_server_url=run_api.url, ensure_scores_are_not_same=False)
    running = asyncio.create_task(env.env_manager())
    await asyncio.sleep(1.5)
    assert not running.done()
    assert "Start it with `run-api`" in caplog.text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    run_api.start()
    async with Consumer(run_api.url, batch_size=4, poll_s=0.1) as consumer:
        assert await pulled(consumer, 1, make_env(rollout_server_url=run_api.url, ensure_scores_are_not_same=False))


async def test_an_engine_that_fails_for_a_moment_costs_nothing(make_env, engine):
    env = make_env(attempts=1)
    engine.faults = [500, 503, 429]
    async with env.running():
        group, _ = await env.collect_trajectories(env.train_tasks[0])
    assert len(group["tokens"]) == 4
    assert not env.metrics.failures


async def test_group_sizes_that_never_fill_a_batch_are_refused_at_once(make_env, run_api):
    env = make_env(rollout_server_url=run_api.url)
    async with Consumer(run_api.url, batch_size=6, poll_s=0.1) as consumer:
        pulling = asyncio.create_task(anext(consumer.batches()))
        with pytest.raises(ValueError, match="must divide the trainer's batch_size"):
            await asyncio.wait_for(env.env_manager(), 30)
        pulling.cancel()


async def test_an_evaluation_reports_pass_at_k_over_its_tasks(make_env):
    env = make_env(eval_samples=4, eval_ks=[1, 2], eval_temperature=1.0)
    summary = await env._run_evaluate()
    assert (env.run_dir / "eval-0.json").exists()
    assert {"pass@1", "pass@2"} <= {key.split("/")[-1] for key in summary.metrics()}
