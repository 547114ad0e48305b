"""A run: cancellations and jumps of the clock cost nothing but time."""

import asyncio
import errno
import gc
import re
import time
from dataclasses import replace

import pytest
from proxy import Proxy
from sums import Sums, fill, metrics_of, right

from envs.judging.changes import Changes
from envs.judging.saved_changes import pack_changes
from envs.records import report
from envs.records.read import read_rollouts
from envs.running import run as run_module
from envs.running.commands import CountPace, evaluate_once
from envs.running.concurrency import ConcurrencyLimiter
from envs.running.group import count_states
from envs.running.run import Run, follow_load, open_run
from envs.running.sinks import FileSink, open_group_file


@pytest.fixture
def policy():
    return right


@pytest.mark.parametrize("what", ["a rollout", "the whole group"])
async def test_a_cancellation_at_any_moment_costs_a_repetition_at_most(engine, make_env, what):
    env = make_env(group_size=2, attempts=3)
    async with open_run(env) as run, asyncio.timeout(120):
        sink = FileSink(run, await open_group_file(run, env.run_dir / "groups.jsonl"))
        for moment in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
            before = asyncio.all_tasks()
            making = asyncio.create_task(run.make_groups(CountPace(run, run.metrics.groups + 1), sink))
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


async def test_a_task_is_in_doubt_if_members_of_a_group_did_the_same_and_were_judged_differently(engine, make_env):
    class Shaky(Sums):
        async def attempt(self, task, seat):
            outcome = await super().attempt(task, seat)
            verdict = replace(outcome.verdict, reward=float(seat.member == 1))
            return replace(outcome, verdict=verdict, work=(pack_changes(Changes(), 10**6),))

    env = make_env(Shaky, group_size=2)
    async with open_run(env) as run:
        group, _ = await fill(run)
    assert metrics_of(env).flaky == {group.task.id: []}


async def test_the_metrics_are_written_though_no_group_ends(engine, make_env, monkeypatch):
    monkeypatch.setattr(run_module, "METRICS_S", 0.1)
    env = make_env(group_size=2)
    async with open_run(env) as run, asyncio.timeout(120):
        await run.next_group()
        run.metrics.count_failure("sandbox")
        while True:
            await asyncio.sleep(0.05)
            if (env.run_dir / "metrics.json").exists() and (found := metrics_of(env)).failures:
                break
    assert (found.failures["sandbox"], found.states) == (1, {"working": 1})


@pytest.mark.parametrize("found", [b"{", b"null", b'{"rollouts": "x"}'])
async def test_metrics_that_can_not_be_read_are_begun_anew_with_the_groups_that_there_are(engine, make_env, found):
    env = make_env(group_size=2)
    async with open_run(env) as run:
        sink = FileSink(run, await open_group_file(run, env.run_dir / "groups.jsonl"))
        await run.work(await run.next_group(), CountPace(run, 1), sink)
    (env.run_dir / "metrics.json").write_bytes(found)
    async with open_run(env) as run:
        assert (run.metrics.groups, run.metrics.rollouts) == (1, 0)
    assert metrics_of(env).states == {"saved": 1}


async def test_on_a_full_disk_the_metrics_and_the_page_are_left_out_and_the_run_ends(
    engine, make_env, monkeypatch, caplog
):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left", str(path))

    env = make_env(group_size=2)
    async with open_run(env) as run:
        await fill(run)
        monkeypatch.setattr(run_module, "replace_file", full)
        monkeypatch.setattr(report, "replace_file", full)
    assert "metrics.json: [Errno 28] No space left" in caplog.text
    assert "rollouts.html: [Errno 28] No space left" in caplog.text


async def test_the_page_shows_the_newest_rollouts(engine, make_env, monkeypatch):
    env = make_env(group_size=2)
    monkeypatch.setattr(run_module, "PAGE", 3)
    async with open_run(env) as run:
        for _ in range(2):
            await fill(run)
    page = (env.run_dir / "rollouts.html").read_text()
    assert "the newest 3 rollouts" in page
    assert len(re.findall('<details class="rollout"', page)) == 3


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


async def test_a_collection_need_not_walk_through_what_is_loaded(make_env):
    env = make_env()
    async with open_run(env):
        assert gc.get_freeze_count() > 100_000
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("page", ["hang", "drip", b"vllm:num_requests_running ", 500])
async def test_no_page_of_metrics_ends_or_stops_what_follows_the_load(engine, make_env, monkeypatch, page):
    monkeypatch.setattr(run_module, "LOAD_S", 0.1)
    monkeypatch.setattr(ConcurrencyLimiter, "look_s", 0.05)
    async with Proxy(engine.url) as proxy:
        proxy.only, proxy.always = b"/metrics", page
        env = make_env()
        for server in env.servers:
            server.url = proxy.url
        async with open_run(env) as run, asyncio.timeout(120):
            following = asyncio.create_task(follow_load(run.env, run.rollouts.limiter))
            while proxy.requests < 3:
                assert not following.done()
                await asyncio.sleep(0.01)
            following.cancel()


async def test_an_evaluation_follows_the_load_too(make_env, monkeypatch):
    counts = []

    async def follow(limiter, load, sampled=None):
        assert await load() is None, "the scripted server does not say how busy it is"
        counts.append(sampled)

    monkeypatch.setattr(ConcurrencyLimiter, "follow", follow)
    await evaluate_once(make_env())
    (sampled,) = counts
    assert sampled() > 0, "tokens are counted as they come"


async def test_a_damaged_rollout_costs_the_page_and_not_the_run(engine, make_env, caplog):
    env = make_env(group_size=2)
    async with open_run(env) as run:
        await fill(run)
        with (env.run_dir / "rollouts.jsonl").open("ab") as file:
            file.write(b'{"schema_version": "ATIF-v1.8"}\n')
    assert "rollouts.html: " in caplog.text and "it is not written" in caplog.text


@pytest.mark.parametrize("left", [None, 100])
async def test_rollouts_that_are_lost_are_named_at_the_next_start(engine, make_env, caplog, left):
    env = make_env(group_size=2)
    async with open_run(env) as run:
        await fill(run)
    path = env.run_dir / "rollouts.jsonl"
    async with open_run(env):
        assert "was cut" not in caplog.text
    data = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(data[:left])
    async with open_run(env) as run:
        assert f"{path} is missing or was cut" in caplog.text
        await fill(run)
    path.write_bytes(data)  # a copy takes the place of nothing that was made meanwhile
    assert len(list(read_rollouts(env.run_dir))) == 4
