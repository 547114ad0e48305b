"""The environment against the real trainer API and an engine over HTTP."""

import asyncio
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from sums import Sums, fill, metrics_of, pulled
from waiting import until

from envs.config import AgentEnvConfig
from envs.delivery.trainer_api import EnvStatus
from envs.lab.consumer import Consumer
from envs.records.metrics import Metrics
from envs.running.commands import CountPace, TrainerPace, evaluate_once, process_groups, show_progress
from envs.running.run import open_run
from envs.running.supply import SupplyMonitor
from envs.types import BadTask, InfraError


async def test_groups_reach_the_trainer_with_their_logprobs(make_env, run_api):
    env = make_env(rollout_server_url=run_api.url)
    async with Consumer(run_api.url, batch_size=8, poll_s=0.2) as consumer:
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
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        groups = await pulled(consumer, 3, env)
    assert all(len(group["tokens"]) == 4 for group in groups)
    metrics = metrics_of(env)
    assert metrics.failures["sandbox"] > 0
    assert metrics.rollouts >= 12


async def test_a_row_that_is_not_what_was_recorded_is_not_sent_and_is_counted(make_env, run_api):
    class Careless(Sums):
        async def attempt(self, task, seat):
            first = not self.attempts[task.id]
            outcome = await super().attempt(task, seat)
            if not first:
                return outcome
            (row,) = outcome.result.segments
            spoilt = replace(row, tokens=[row.tokens[0] + 1, *row.tokens[1:]])
            return replace(outcome, result=replace(outcome.result, segments=(spoilt,)))

    env = make_env(Careless, rollout_server_url=run_api.url, ensure_scores_are_not_same=False)
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        groups = await pulled(consumer, 3, env)
    assert metrics_of(env).failures["row"] >= 3, "one in each group"
    assert all(row[0] == 1 for group in groups for row in group["tokens"]), "<|im_start|>, as it was sent"


async def test_a_group_that_can_not_be_completed_keeps_its_good_members_for_the_next_time(make_env):
    class OneDown(Sums):
        def failing(self, task, attempt):
            return 3 < attempt <= 5

    env = make_env(OneDown, attempts=1)
    async with open_run(env) as run:
        group, wire = await fill(run)
        task = group.task
        assert wire is None
        assert len(group.members) == 3
        assert env.attempts[task.id] == 4
        again, wire = await fill(run)
        assert again is group, "it was put back"
        assert wire is None, "the fifth attempt fails too"
        again, wire = await fill(run)
        assert again is group
        assert len(wire["tokens"]) == 4
        assert env.attempts[task.id] == 6


async def test_a_task_that_always_fails_by_our_fault_is_quarantined_and_the_others_go_on(make_env, run_api):
    class Broken(Sums):
        def failing(self, task, attempt):
            return task.id == "sum-1"

    env = make_env(
        Broken, rollout_server_url=run_api.url, ensure_scores_are_not_same=False, attempts=1, task_failures=1
    )
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        groups = await pulled(consumer, 8, env)
    assert "sum-1" not in {group["generation_params"]["task_id"] for group in groups}
    assert env.attempts["sum-1"] == 4


async def test_when_every_task_fails_by_our_fault_the_run_ends_with_the_reason(make_env):
    class AllBroken(Sums):
        def failing(self, task, attempt):
            return True

    env = make_env(AllBroken, attempts=1, task_failures=1, group_size=2, total_steps=1)
    with pytest.raises(InfraError, match=r"every task is quarantined; see .*; the last failure: sandbox: "):
        await process_groups(env)


async def test_the_trainer_has_had_enough_when_it_is_told_twice():
    def told(**said):
        return EnvStatus(current_step=3, self_queue_size=0, env_weight=0.5, **{"queue_size": 0, **said})

    config = AgentEnvConfig(total_steps=10, group_size=4)
    sender = SimpleNamespace(
        answer=SimpleNamespace(starting_step=3, num_steps=10), step=3, status=told(), batch_size=8, max_token_len=-1
    )
    run = SimpleNamespace(config=config, useful_groups=4, supply=SupplyMonitor())
    pace = TrainerPace(run, SimpleNamespace(sender=sender, outbox=SimpleNamespace(bytes=0, ready=0)))
    rooms = []
    for status in (told(), told(queue_size=10**9), told(), *[told(queue_size=30)] * 2, told(queue_size=31)):
        sender.status = status
        rooms.append(await pace.room(0))
    assert rooms[1:] == [0, rooms[0], 0, 0, None], "an answer that was wrong once ends nothing"
    sender.status = told()
    for working in (config.max_batches_offpolicy * 2 - 1, config.max_batches_offpolicy * 2):
        await pace.room(working)
        assert run.supply.begun is (working == config.max_batches_offpolicy * 2), "two groups make a batch"


@pytest.mark.parametrize("named", [-1, 0])
async def test_a_trainer_that_names_no_last_step_has_never_had_enough(named):
    def told():
        return EnvStatus(current_step=10**6, queue_size=2, self_queue_size=0, env_weight=1.0)

    answer = SimpleNamespace(starting_step=10**6, num_steps=named)
    sender = SimpleNamespace(answer=answer, step=10**6, status=told(), batch_size=8, max_token_len=-1)
    config = AgentEnvConfig(total_steps=-1, group_size=4)
    run = SimpleNamespace(config=config, useful_groups=2, supply=SupplyMonitor())
    pace = TrainerPace(run, SimpleNamespace(sender=sender, outbox=SimpleNamespace(bytes=0, ready=0)))
    for _ in range(3):
        assert await pace.room(0) == 2
        sender.status = told()


def trainer_at(step, run):
    """The pace of a trainer that takes this step."""
    status = EnvStatus(current_step=step, queue_size=0, self_queue_size=0, env_weight=1.0)
    answer = SimpleNamespace(starting_step=step - 1, num_steps=step)
    sender = SimpleNamespace(answer=answer, step=step, status=status, batch_size=4, max_token_len=-1)
    return TrainerPace(run, SimpleNamespace(sender=sender, outbox=SimpleNamespace(bytes=0, ready=0)))


class Held(Sums):
    """Evaluations of it wait for a word."""

    async def setup(self, resources):
        await super().setup(resources)
        self.may = asyncio.Event()

    async def attempt(self, task, seat):
        if seat.evaluating:
            await self.may.wait()
        return await super().attempt(task, seat)


async def test_the_evaluation_of_the_last_step_is_finished_when_the_trainer_has_had_enough(make_env):
    env = make_env(Held, steps_per_eval=2, total_steps=4, eval_temperature=1.0)
    async with open_run(env) as run:
        pace = trainer_at(2, run)
        await pace.room(0)
        pace._sender.step = 4
        await pace.room(0)
        finishing = asyncio.create_task(pace.finish_evaluations())
        await asyncio.sleep(0.1)
        assert not finishing.done(), "that of step 2 goes on; that of step 4 was due meanwhile"
        env.may.set()
        await asyncio.wait_for(finishing, 60)
    assert sorted(path.name for path in env.run_dir.glob("eval-*.json")) == ["eval-2.json", "eval-4.json"]


async def test_a_trainer_that_comes_to_a_step_again_gets_another_evaluation_of_it(make_env, caplog):
    env = make_env(steps_per_eval=2, total_steps=2, eval_temperature=1.0)
    samples = []
    for _ in range(2):  # the second trainer begins again from a checkpoint before
        async with open_run(env) as run:
            pace = trainer_at(2, run)
            await pace.room(0)
            await asyncio.wait_for(pace.finish_evaluations(), 60)
        lines = (env.run_dir / "eval-2.samples.jsonl").read_text().splitlines()
        samples.append({json.loads(line)["rollout"] for line in lines[1:]})
    assert [*map(len, samples)] == [3, 3]
    assert samples[0].isdisjoint(samples[1]), "those of the first are of weights that were lost"
    assert "comes to this step again" in caplog.text


class Unexamined(Sums):
    """It has no tasks to evaluate on."""

    @classmethod
    def load_tasks(cls, config):
        return super().load_tasks(config)[0], []


async def test_evaluations_without_a_task_are_refused_before_the_trainer_is_waited_for(make_env, run_api):
    env = make_env(Unexamined, rollout_server_url=run_api.url, steps_per_eval=2)
    with pytest.raises(BadTask, match=r"sums has no tasks to evaluate on; give some, or leave --env.steps_per_eval"):
        await asyncio.wait_for(env.env_manager(), 60)


async def test_a_part_without_a_task_to_evaluate_on_makes_no_evaluation(make_env):
    env = make_env(Unexamined, steps_per_eval=2, total_steps=2)
    async with open_run(env, "feed") as run:
        pace = trainer_at(2, run)
        await pace.room(0)
        await asyncio.wait_for(pace.finish_evaluations(), 60)
    assert not list(env.run_dir.glob("eval-*"))


async def test_a_run_for_a_trainer_ends_with_its_last_evaluation(make_env, run_api, monkeypatch):
    env = make_env(Held, rollout_server_url=run_api.url, steps_per_eval=1, total_steps=1, equal_rewards="send")
    finish = TrainerPace.finish_evaluations

    def only_now(pace):
        env.may.set()
        return finish(pace)

    monkeypatch.setattr(TrainerPace, "finish_evaluations", only_now)
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        running = asyncio.create_task(env.env_manager())
        async for _ in consumer.batches(1):
            await asyncio.wait_for(running, 120)
    assert list(env.run_dir.glob("eval-*.json"))


@pytest.mark.parametrize("end", ["asked to stop", "no inference server"])
async def test_a_last_evaluation_that_can_not_be_finished_is_given_up(make_env, engine, monkeypatch, caplog, end):
    monkeypatch.setattr("envs.running.commands.GONE_S", 0.5)
    env = make_env(Held, steps_per_eval=2, total_steps=2, eval_temperature=1.0)
    async with open_run(env) as run:
        pace = trainer_at(2, run)
        await pace.room(0)
        if end == "asked to stop":
            env.stopping.ask()
        else:
            await asyncio.to_thread(engine.__exit__)
        await asyncio.wait_for(pace.finish_evaluations(), 60)
    assert ("no inference server has answered" in caplog.text) is (end != "asked to stop")
    assert not list(env.run_dir.glob("eval-*.json"))


async def test_rollouts_end_before_the_longest_row_that_a_trainer_takes_who_comes_back(make_env, run_api, engine):
    engine.policy = lambda _: '<tool_call>{"name": "calculator", "arguments": {"expression": "1+1"}}</tool_call>'
    env = make_env(
        rollout_server_url=run_api.url, ensure_scores_are_not_same=False, max_steps=6, max_concurrent_rollouts=4
    )
    lengths, running = {}, asyncio.create_task(env.env_manager())
    for most in (32768, 500):
        run_api.stop()
        run_api.start()
        async with Consumer(run_api.url, batch_size=4, max_token_len=most, poll_s=0.2) as consumer:
            async with asyncio.timeout(120):
                async for batch in consumer.batches():
                    lengths[most] = max(len(row) for group in batch.groups for row in group["tokens"])
                    break
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert lengths[500] < 500 < lengths[32768]


async def test_the_trainer_api_may_come_up_later(make_env, run_api, caplog):
    run_api.stop()
    env = make_env(rollout_server_url=run_api.url, ensure_scores_are_not_same=False)
    running = asyncio.create_task(env.env_manager())
    await until(lambda: "Start it with `run-api`" in caplog.text)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    run_api.start()
    async with Consumer(run_api.url, batch_size=4, poll_s=0.2) as consumer:
        assert await pulled(consumer, 1, make_env(rollout_server_url=run_api.url, ensure_scores_are_not_same=False))


async def test_an_engine_that_fails_for_a_moment_costs_nothing(make_env, engine):
    env = make_env(attempts=1)
    engine.faults = [500, 503, 429]
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert len(wire["tokens"]) == 4
    assert not run.metrics.failures


async def test_group_sizes_that_never_fill_a_batch_are_refused_at_once(make_env, run_api):
    env = make_env(rollout_server_url=run_api.url)
    async with Consumer(run_api.url, batch_size=6, poll_s=0.2) as consumer:
        pulling = asyncio.create_task(anext(consumer.batches()))
        with pytest.raises(ValueError, match="must divide the trainer's batch_size"):
            await asyncio.wait_for(env.env_manager(), 30)
        pulling.cancel()


async def test_an_evaluation_reports_pass_at_k_over_its_tasks(make_env):
    env = make_env(eval_samples=4, eval_ks=[1, 2], eval_temperature=1.0)
    summary = await evaluate_once(env)
    assert (env.run_dir / "eval-0.json").exists()
    assert {"pass@1", "pass@2"} <= {key.split("/")[-1] for key in summary.metrics()}


async def test_the_bar_says_that_tokens_are_sampled_before_the_first_rollout_is_over(capsys):
    def run(rollouts):
        return SimpleNamespace(metrics=Metrics(rollouts=rollouts), env=SimpleNamespace(servers=[engine, engine]))

    engine = SimpleNamespace(sampled=600)
    async with show_progress(run(0), "groups", 2, lambda: 0):
        pass
    assert "no rollout yet, 1,200 tokens sampled so far" in capsys.readouterr().err
    async with show_progress(run(1), "groups", 2, lambda: 0):
        pass
    assert "sampled so far" not in capsys.readouterr().err


async def test_the_bar_of_an_evaluation_says_what_holds_it_up(make_env, monkeypatch, capsys):
    monkeypatch.setattr("envs.running.commands.METRICS_S", 0.01)
    await evaluate_once(make_env(eval_samples=4, eval_temperature=1.0))
    assert re.search(r"evaluating: .*(held up by|set the pace|samples? left)", capsys.readouterr().err)


async def test_the_reward_hook_shapes_training_and_leaves_evaluations_alone(make_env, engine):
    class Strict(Sums):
        def reward(self, task, outcome):
            return outcome.verdict.reward - 2.0

    env = make_env(Strict, group_size=2, eval_samples=8, eval_temperature=1.0)
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert all(score < 0 for score in wire["scores"])
    summary = await evaluate_once(env)
    assert sum(task.solved for task in summary.tasks) > 0, "half of the answers are right"


@pytest.mark.parametrize(("working", "begun"), [(1, False), (2, True)])
async def test_a_run_with_all_its_groups_begun_is_held_up_by_no_queue(working, begun):
    run = SimpleNamespace(metrics=SimpleNamespace(groups=3), useful_groups=9, supply=SupplyMonitor())
    await CountPace(run, 5).room(working)
    assert run.supply.begun is begun
