"""A run as a library: groups in its own order, or as they are asked for, each trained on once."""

import asyncio
import threading
import time
from concurrent.futures import CancelledError
from functools import partial

import pytest
from sums import Sums, right

from envs.running.commands import CountPace
from envs.running.feed import FeedThread, RunEnded, feed
from envs.running.group import UntakenGroup, count_states, group_outcomes
from envs.running.sinks import FileSink, HandOverSink
from envs.types import BadTask, InfraError, Task


@pytest.fixture
def policy():
    return right


def ids(group):
    return sorted(group.rollouts)


async def test_a_run_makes_its_groups_while_the_block_runs(make_env, tmp_path):
    env, path = make_env(group_size=2), tmp_path / "groups.jsonl"
    async with feed(env, partial(FileSink.to, path), lambda run, _: CountPace(run, 3)) as fed:
        await fed.done()
    assert len(path.read_bytes().splitlines()) == 3
    assert [outcome.state for outcome in group_outcomes(env.run_dir)] == ["saved"] * 3


async def test_a_group_that_is_asked_for_has_the_wanted_task_members_and_version(make_env):
    async with feed(make_env(group_size=4)) as fed:
        group = await fed.ask("sum-3", members=2, name="step-7/0", version=7)
        other = await fed.ask(Task("sum-50", "What is 50 + 50?"), members=1, name="of my own")
        assert fed.run.metrics.recent == [False], "a single rollout has none to differ from"
    assert (group.name, group.scored.origin.task_id, len(group.rollouts)) == ("step-7/0", "sum-3", 2)
    assert {row.step for row in group.scored.rows} == {7}
    assert [row.score for row in (*group.scored.rows, *other.scored.rows)] == [1.0] * 3


async def test_asked_groups_and_those_of_the_runs_order_stand_in_one_journal(make_env, tmp_path):
    env = make_env(group_size=2)
    sink = partial(FileSink.to, tmp_path / "groups.jsonl")
    async with feed(env, sink, lambda run, _: CountPace(run, 2)) as fed:
        await asyncio.gather(fed.done(), fed.ask("sum-3", members=2, name="mine"))
        assert await count_states(fed.run.journal) == {"saved": 2, "taken": 1}
        await fed.confirm(["mine"])
        await fed.confirm(["mine"])  # which is no news
        with pytest.raises(UntakenGroup, match="'yours'"):
            await fed.confirm(["yours"])
    assert sorted(outcome.state for outcome in group_outcomes(env.run_dir)) == ["confirmed", "saved", "saved"]


async def test_two_who_ask_for_one_name_get_the_same_group_and_others_are_refused(make_env):
    async with feed(make_env()) as fed:
        first, second = await asyncio.gather(*(fed.ask("sum-1", members=2, name="a") for _ in range(2)))
        later = await fed.ask("sum-1", members=2, name="a")
        assert ids(first) == ids(second) == ids(later)
        with pytest.raises(ValueError, match="has 2 members of task sum-1; ask under another name"):
            await fed.ask("sum-2", members=2, name="a")
        with pytest.raises(BadTask, match="no task of this run has the id 'sum-99'"):
            await fed.ask("sum-99", members=2, name="b")
        await fed.confirm(["a"])
        with pytest.raises(ValueError, match="was trained on and confirmed"):
            await fed.ask("sum-1", members=2, name="a")


@pytest.mark.parametrize(
    ("members", "name", "named"),
    [
        *((members, "a", "members is .*from 1 to 10000") for members in (0, -1, 10**7, 1.5, True, "2")),
        *((1, name, "name is .*as UTF-8") for name in (None, 5, "\ud800")),
    ],
)
async def test_a_group_that_can_not_be_is_refused_by_the_argument_and_leaves_nothing(make_env, members, name, named):
    async with feed(make_env()) as fed:
        with pytest.raises(ValueError, match=named):
            await fed.ask("sum-1", members=members, name=name)
        assert not await count_states(fed.run.journal)


async def test_after_a_restart_what_was_not_confirmed_is_given_again_under_its_name(make_env):
    async with feed(make_env()) as fed:
        kept, lost = [await fed.ask("sum-1", members=2, name=name) for name in ("kept", "lost")]
        await fed.confirm(["kept"])
    async with feed(make_env()) as fed:
        assert ids(await fed.ask("sum-1", members=2, name="lost")) == ids(lost)
        with pytest.raises(ValueError, match="confirmed"):
            await fed.ask("sum-1", members=2, name="kept")
    async with feed(make_env(), trained=["lost"]) as fed:  # as an older state of the trainer says
        assert ids(await fed.ask("sum-1", members=2, name="kept")) == ids(kept)
        with pytest.raises(ValueError, match="confirmed"):
            await fed.ask("sum-1", members=2, name="lost")
        assert fed.run.metrics.groups == 2, "none is counted twice"


async def test_a_group_that_nobody_waits_for_is_left_and_gone_on_with_when_it_is_asked_for_again(make_env):
    class Slow(Sums):
        async def attempt(self, task, seat):
            if seat.member == 1:
                await self.gate.wait()
            return await super().attempt(task, seat)

    env = make_env(Slow)
    env.gate = asyncio.Event()
    async with feed(env) as fed:
        waiting = [asyncio.create_task(fed.ask("sum-1", members=2, name="a")) for _ in range(2)]
        async with asyncio.timeout(120):
            while True:
                await asyncio.sleep(0.05)
                if await fed.run.journal.read(lambda db: db.execute("SELECT 1 FROM members").fetchone()):
                    break  # counted alone, it may not be kept yet
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        assert not waiting[1].done(), "somebody waits still"
        waiting[1].cancel()
        await asyncio.gather(waiting[1], return_exceptions=True)
        assert fed.run.rollouts.limiter.active == 0
        env.gate.set()
        await fed.ask("sum-1", members=2, name="a")
    assert env.attempts["sum-1"] == 2, "the first member was kept"


async def test_an_asked_task_that_always_fails_by_our_fault_is_refused_with_the_reason(make_env):
    class Broken(Sums):
        def failing(self, task, attempt):
            return task.id == "sum-1"

    env = make_env(Broken, attempts=1, task_failures=2)
    async with feed(env) as fed, asyncio.timeout(120):
        for name in ("a", "a", "b"):
            with pytest.raises(InfraError, match="quarantined"):
                await fed.ask("sum-1", members=1, name=name)
        assert len((await fed.ask("sum-2", members=1, name="c")).rollouts) == 1


async def test_whoever_asks_is_told_that_the_run_has_ended(make_env):
    async def fail():
        raise OSError("the disk is gone")

    async with feed(make_env()) as fed:
        fed.run.run_in_background(fail())
        with pytest.raises(OSError, match="disk is gone"):
            await fed.done()
        with pytest.raises(RunEnded, match="the run has ended: the disk is gone") as raised:
            await fed.ask("sum-1", members=1, name="a")
    assert isinstance(raised.value.__cause__, OSError)
    async with feed(make_env()) as fed:
        fed.stop()
        await fed.done()
        with pytest.raises(RunEnded):
            await fed.ask("sum-1", members=1, name="a")


async def test_groups_of_the_runs_order_go_to_a_trainer_in_this_process_until_it_confirms_them(make_env):
    taken = []
    sink, pace = partial(HandOverSink.to, taken.append), lambda run, _: CountPace(run, 3)
    async with feed(make_env(group_size=2, equal_rewards="send"), sink, pace) as fed:
        await fed.done()
        await fed.confirm([taken[0].name])
    again = []
    env = make_env(group_size=2, equal_rewards="send")
    async with feed(env, partial(HandOverSink.to, again.append), pace, trained=[taken[1].name]) as fed:
        await fed.done()
    assert sorted(group.name for group in taken) == [f"{fed.run.id}-{number}" for number in range(3)]
    assert {group.name for group in again} == {taken[0].name, taken[2].name}
    assert sorted(map(ids, again)) == sorted(map(ids, (taken[0], taken[2]))), "the same rollouts"
    assert not env.attempts


def test_in_a_program_without_an_event_loop_a_thread_has_it(make_env):
    async def made():
        return make_env()

    with FeedThread(made) as thread:
        group = thread.call(lambda fed: fed.ask("sum-1", members=2, name="a"))
        thread.call(lambda fed: fed.confirm([group.name]))
        with pytest.raises(BadTask):
            thread.call(lambda fed: fed.ask("sum-99", members=2, name="b"))
        thread.check()
    with pytest.raises(RunEnded):
        thread.call(lambda fed: fed.ask("sum-1", members=2, name="c"))


class SlowToEnd(FeedThread):
    """Its thread lives on for a while after its event loop is closed."""

    def _main(self):
        super()._main()
        time.sleep(0.3)


@pytest.mark.parametrize("kind", [FeedThread, SlowToEnd])
@pytest.mark.parametrize(
    "ask", [lambda thread: thread.call(lambda fed: asyncio.sleep(0)), lambda thread: thread.check(60)]
)
def test_a_thread_whose_run_has_ended_says_why(make_env, kind, ask):
    async def made():
        return make_env()

    async def fail():
        raise OSError("the disk is gone")

    async def end(fed):
        fed.run.run_in_background(fail())

    with kind(made) as thread:
        thread.call(end)
        while thread.error is None:
            time.sleep(0.01)
        with pytest.raises(RunEnded, match="the run has ended: the disk is gone"):
            ask(thread)


def test_a_thread_whose_event_loop_is_blocked_says_so_and_is_left_behind(make_env):
    async def made():
        return make_env()

    release = threading.Event()

    async def block(fed):
        release.wait()

    asking = threading.Thread(target=lambda: thread.call(block), daemon=True)
    with FeedThread(made) as thread:
        thread.check(60)
        asking.start()
        with pytest.raises(RunEnded, match=r"event loop has been blocked for 0\.2 s, such as by a reward function"):
            while True:
                thread.check(0.2)
    release.set()
    asking.join()
    thread._thread.join()


def test_what_keeps_a_run_from_opening_is_raised_where_the_thread_was_started():
    async def made():
        raise OSError("no such model")

    with pytest.raises(OSError, match="no such model"), FeedThread(made):
        pass


def test_nobody_waits_for_a_thread_whose_run_was_cancelled_before_it_was_open():
    async def made():
        raise asyncio.CancelledError

    with pytest.raises(CancelledError), FeedThread(made):
        pass


def test_what_keeps_a_run_from_opening_is_raised_while_the_thread_ends():
    async def made():
        raise OSError("no such model")

    with pytest.raises(OSError, match="no such model"), SlowToEnd(made):
        pass


def test_a_feed_that_was_never_entered_is_left_without_an_error():
    FeedThread(None).__exit__()  # TRL stops its worker also where its own start failed


def test_nobody_waits_for_a_call_that_comes_while_the_thread_ends():
    ending, release = threading.Event(), threading.Event()

    class Ending(FeedThread):
        async def _run(self):
            self._loop = asyncio.get_running_loop()
            self._opened.set_result(None)
            self._loop.run_in_executor(None, release.wait)  # the loop is closed when it is over, and not before
            ending.set()

        def __exit__(self, *exc):
            self._thread.join()

    ended = []

    def ask():
        try:
            thread.call(lambda fed: asyncio.sleep(3600))
        except RunEnded as error:
            ended.append(error)

    with Ending(None) as thread:
        ending.wait()
        time.sleep(0.2)  # the loop does nothing any more but wait for that
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        time.sleep(0.2)
        release.set()
        asking.join(30)
    assert ended
