"""A full disk: everything waits until there is room, and nothing that was asked to stop."""

import asyncio
import errno
import itertools

import orjson
import pytest
from stopwatch import Stopwatch
from sums import metrics_of, right

from envs.records import atif, disk
from envs.running import run as run_module
from envs.running.commands import process_groups
from envs.running.journal import Journal


@pytest.fixture
def policy():
    return right


@pytest.fixture
def fill_up(monkeypatch):
    """Fills the disk, for the journal and for files."""
    journals = []

    class Noted(Journal):
        async def __aenter__(self):
            journals.append(self)
            return await super().__aenter__()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill_up():
        journal = journals[-1]
        journal._db.execute("PRAGMA max_page_count = 1")  # which SQLite takes for: no page more
        for module in (disk, atif):
            monkeypatch.setattr(module, "append", full)
        monkeypatch.setattr(run_module, "replace_file", full)

    monkeypatch.setattr(run_module, "Journal", Noted)
    yield fill_up


async def test_a_group_that_a_full_disk_keeps_from_beginning_is_begun_at_the_next_start(make_env, fill_up, monkeypatch):
    env, begin, begun = make_env(group_size=2, total_steps=4), run_module.Run.next_group, itertools.count(1)

    async def begin_at_the_end(run):
        if next(begun) == 3:
            fill_up()
            env.stopping.ask()
            await run.journal.replace("large", "x" * 100_000)  # needs a page, as a group's beginning may
        return await begin(run)

    monkeypatch.setattr(run_module.Run, "next_group", begin_at_the_end)
    await asyncio.wait_for(process_groups(env), 60)
    assert env.stopping.requested
    monkeypatch.undo()
    again = make_env(group_size=2, total_steps=4)
    await asyncio.wait_for(process_groups(again), 60)
    assert metrics_of(again).states == {"saved": 4}


@pytest.mark.parametrize("times", [1, 2])
async def test_on_a_full_disk_a_run_ends_when_it_is_asked_and_goes_on_later(make_env, fill_up, monkeypatch, times):
    env = make_env(group_size=2, total_steps=30, shutdown_s=1.0 if times == 1 else 600.0)
    making = asyncio.create_task(process_groups(env))
    while not (env.run_dir / "groups.jsonl").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    fill_up()
    await asyncio.sleep(1.0)
    assert not making.done()
    watch = Stopwatch()
    for _ in range(times):
        if not env.stopping.ask():
            making.cancel()
        await asyncio.sleep(0.2)
    await asyncio.wait({making}, timeout=120)
    assert making.done()
    assert making.cancelled() or making.exception() is None
    assert watch.seconds < 10
    monkeypatch.undo()
    again = make_env(group_size=2, total_steps=30)
    await asyncio.wait_for(process_groups(again), 60)
    lines = (again.run_dir / "groups.jsonl").read_bytes().splitlines()
    numbers = [int(orjson.loads(line)["generation_params"]["group_id"].rpartition("-")[2]) for line in lines]
    assert sorted(numbers) == list(range(30)), "nothing lost, nothing twice"
    assert metrics_of(again).states == {"saved": 30}
