"""The parts that keep a run alive, one at a time."""

import asyncio
import itertools
import logging
import random
import time

import pytest
from scripted_engine import ScriptedEngine
from sums import Sums, fill, right

from atropos_agent.engines.completions import Load
from envs.delivery.packing import RowPacker
from envs.records.redaction import Redactor
from envs.running.commands import CountPace
from envs.running.concurrency import CircuitBreaker, ConcurrencyLimiter, HillClimb
from envs.running.group import count_states
from envs.running.outbox import Outbox
from envs.running.run import Run, open_run
from envs.running.sinks import FileSink, GroupFile, TrainerSink
from envs.running.watchdog import LoopWatch
from envs.types import InfraError, Outcome, Verdict
from tools import ToolRegistry


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(right, smollm2_tokenizer) as engine:
        yield engine


def test_the_breaker_takes_hold_above_the_share_and_lets_go_after_successes(caplog):
    breaker = CircuitBreaker(0.5)
    for n in range(16):
        breaker.note(InfraError("engine", "400") if n % 2 else None)
    assert not breaker.is_open, "half is allowed"
    for _ in range(8):
        breaker.note(InfraError("engine", "400"))
    assert breaker.pause_s == 1.0, "what failed at the same time slows the run down once"
    assert "failed by our fault (engine:" in caplog.text
    for _ in range(3):
        breaker.note(None)
    assert not breaker.is_open


def test_concurrency_grows_while_throughput_does_and_then_stays():
    climb = HillClimb(8, 64)
    for _ in range(60):
        climb.look(tokens_per_s=100.0 * min(climb.limit, 24), saturated=True, queueing=False)
    assert 20 <= climb.limit <= 30


def test_concurrency_shrinks_while_requests_queue_and_never_below_one():
    climb = HillClimb(16, 64)
    assert climb.look(tokens_per_s=10, saturated=True, queueing=True) == 12
    for _ in range(30):
        climb.look(tokens_per_s=10, saturated=True, queueing=True)
    assert climb.limit == 1


@pytest.mark.parametrize(
    "waiting, shrinks", [([8, 8, 0, 8, 8], False), ([0, 0, 0, 0, 8], False), ([8, 8, 8, 8, 8], True)]
)
async def test_a_burst_of_requests_is_no_queue(waiting, shrinks, monkeypatch):
    limiter = ConcurrencyLimiter(start=16, most=64, breaker=CircuitBreaker(0.5))
    monkeypatch.setattr(limiter, "look_s", 0.05)
    looks = itertools.cycle(waiting)

    async def load():
        return Load(running=8, waiting=next(looks), preempted=0)

    following = asyncio.create_task(limiter.follow(load))
    await asyncio.sleep(0.5)
    following.cancel()
    assert (limiter.limit < 16) == shrinks


async def test_rollouts_are_let_in_up_to_the_limit_whatever_becomes_of_those_that_wait():
    limiter = ConcurrencyLimiter(start=3, most=3, breaker=CircuitBreaker(0.5))
    seen, rng = [], random.Random(0)

    async def one():
        async with limiter.slot():
            seen.append(limiter.active)
            await asyncio.sleep(rng.random() / 100)

    tasks = [asyncio.create_task(one()) for _ in range(60)]
    for task in rng.sample(tasks, 30):
        await asyncio.sleep(0.001)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert max(seen) == 3
    assert limiter.active == 0


async def test_what_blocks_the_loop_is_logged_with_its_stack(caplog):
    async with LoopWatch() as watch:
        await asyncio.sleep(0.1)
        time.sleep(0.4)  # noqa: ASYNC251 - the fault
        await asyncio.sleep(0.1)
    assert watch.blocks >= 1
    assert watch.longest_s > 0.3
    assert "time.sleep(0.4)" in caplog.text


def test_secrets_are_replaced_in_messages_tracebacks_and_addresses():
    redactor = Redactor.of({"HF_TOKEN": "hf_abcdefgh", "HOME": "/home/someone", "API_KEY": "short"}, ["sk-12345678"])
    try:
        raise ValueError("Bearer sk-12345678")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
        record = logging.LogRecord("x", 20, "", 0, "%s at https://me:pass@host/", ("hf_abcdefgh",), info)
    assert redactor.filter(record)
    assert record.getMessage() == "*** at https://***@host/"
    assert "sk-12345678" not in record.exc_text
    assert redactor.text("/home/someone short") == "/home/someone short"


@pytest.mark.parametrize("what", ["a rollout", "the whole group"])
async def test_a_cancellation_at_any_moment_costs_a_repetition_at_most(engine, make_env, what):
    env = make_env(group_size=2, attempts=3)
    async with open_run(env) as run, asyncio.timeout(120):
        sink = FileSink(run, GroupFile(env.run_dir / "groups.jsonl"))
        for moment in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
            before = asyncio.all_tasks()
            making = asyncio.create_task(run.make_groups(CountPace(run, run.metrics.groups + 1), sink, []))
            await asyncio.sleep(0)
            for _ in range(moment):
                await asyncio.sleep(0.001)
            wanted = Run._member if what == "a rollout" else Run.work
            for task in asyncio.all_tasks() - before:
                if task.get_coro().__qualname__ == wanted.__qualname__:
                    task.cancel()
                    break
            await making
        assert run.rollouts.limiter.active == 0, "no slot is lost"
        counts = await count_states(run.journal)
    assert counts == {"saved": 11}, "every group was completed, none twice"
    assert run.metrics.solved == run.metrics.rollouts


async def test_a_failed_verifier_costs_no_new_replies(engine, make_env):
    class Crashing(Sums):
        async def attempt(self, task, seat):
            outcome = await super().attempt(task, seat)
            if self.attempts[task.id] == 1:
                raise InfraError("verifier", "it crashed")
            return outcome

    env = make_env(Crashing, group_size=1)
    async with open_run(env) as run:
        await fill(run)
    assert env.attempts.total() == 2
    assert engine.requests == 2, "the second attempt got the replies of the first"


@pytest.mark.parametrize(
    ("output", "requests"),
    [("2 passed in 0.{n}1s", 2), ("real 0m{n}.21s", 2), ("Ran 3 tests in 0.00{n}s", 2), ("{n} passed in 0.01s", 3)],
)
async def test_times_that_tools_print_cost_no_new_replies_and_other_differences_do(engine, make_env, output, requests):
    told = []

    async def calculator(expression: str) -> str:
        told.append(output.format(n=len(told)))
        return told[-1]

    class Timing(Sums):
        async def attempt(self, task, seat):
            result = await self.agent(seat, ToolRegistry([calculator])).run(task.instruction)
            self.results.append(result)
            if len(told) == 1:
                raise InfraError("verifier", "it crashed")
            return Outcome(result, Verdict(1.0, ""))

    env = make_env(Timing, group_size=1)
    env.results = []
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert len(set(told)) == 2
    assert engine.requests == requests
    first, second = env.results
    (row,) = wire["tokens"]
    heard = told[0] if requests == 2 else told[1]
    assert heard in env.tokenizer.decode(row), "the policy answered to what stands in its row"
    assert (second.final_response == first.final_response) == (requests == 2)


async def test_a_jump_of_the_clock_changes_nothing(engine, make_env, monkeypatch):
    real, jumps = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + jumps[0])
    env = make_env(group_size=2, rollout_timeout_s=30.0)
    async with open_run(env) as run:
        for jump in (86400.0, -86400.0):
            jumps[0] = jump
            _, wire = await fill(run)
            assert wire["scores"] == [1.0, 1.0]
    assert not run.metrics.failures


async def test_groups_with_equal_rewards_are_made_anew_twice_where_that_is_wanted(engine, make_env):
    env = make_env(group_size=2, equal_rewards="resample")
    async with open_run(env) as run:
        sink = TrainerSink(run, Outbox(run.journal), RowPacker(2), None)
        group = await run.next_group()
        for again in (1, 2):
            await run.work(group, CountPace(run, 1), sink)
            group = await run.queue.next()
            assert (group.number, group.resampled, group.members) == (0, again, {})
        await run.work(group, CountPace(run, 1), sink)
        assert await count_states(run.journal) == {"equal": 1}
    assert env.attempts.total() == 6
