"""What becomes of complete groups."""

import json
import os
from dataclasses import replace

import pytest
from sums import right

from envs.delivery.packing import RowPacker
from envs.delivery.rows import DroppedRow
from envs.running.commands import CountPace
from envs.running.group import count_states, group_outcomes
from envs.running.outbox import Outbox
from envs.running.run import open_run
from envs.running.sinks import FileSink, TrainerSink, open_group_file


@pytest.fixture
def policy():
    return right


async def work(run, sink, groups):
    for _ in range(groups):
        await run.work(await run.next_group(), CountPace(run, 9), sink)


async def test_a_group_that_was_written_before_the_end_is_not_written_again(engine, make_env):
    env = make_env(group_size=2)
    path = env.run_dir / "groups.jsonl"
    async with open_run(env) as run:
        sink = FileSink(run, await open_group_file(run, path))
        await work(run, sink, 3)
        scored = await run.fill(await run.next_group(), CountPace(run, 9))
        await (await open_group_file(run, path)).append(scored)  # and here the process is killed
    with path.open("ab") as file:
        file.write(b'{"torn')
    async with open_run(env) as run:
        file = await open_group_file(run, path)
        sink, left = FileSink(run, file), run.queue._put_back[0]
        assert left.number == 3
        await work(run, sink, 2)
    written = [json.loads(line)["generation_params"]["group_id"] for line in path.read_bytes().splitlines()[:4]]
    assert written == [f"{run.id}-{n}" for n in range(4)]
    lines = path.read_bytes().splitlines()
    assert lines[4] == b'{"torn'
    assert json.loads(lines[5])["generation_params"]["group_id"] == f"{run.id}-4", "a torn line costs itself alone"
    assert len(lines) == 6


async def test_the_file_of_groups_is_read_from_where_nothing_is_decided(engine, make_env, caplog):
    env = make_env(group_size=2)
    path = env.run_dir / "groups.jsonl"
    async with open_run(env) as run:
        sink = FileSink(run, await open_group_file(run, path))
        await work(run, sink, 3)
        since = await run.journal.read(
            lambda db: db.execute("SELECT value FROM run WHERE key LIKE 'written:%'").fetchone()
        )
    assert int(since[0]) == path.stat().st_size
    with path.open("r+b") as written:
        written.write(b"?")
    async with open_run(env) as run:
        await open_group_file(run, path)
    assert "torn" not in caplog.text, "what stands before that is not looked at"


async def test_a_group_is_on_the_disk_before_the_journal_says_so(engine, make_env, monkeypatch):
    env, synced = make_env(group_size=2), []
    path = env.run_dir / "groups.jsonl"
    async with open_run(env) as run:
        group = await run.next_group()
        monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file), group.state)))
        await run.work(group, CountPace(run, 9), FileSink(run, await open_group_file(run, path)))
    found = path.stat()
    seen = [(one.st_size, state) for one, state in synced if one.st_ino == found.st_ino]
    assert seen == [(found.st_size, "working")]


@pytest.mark.parametrize("left", [None, 0, 1, 10**6])
async def test_a_file_of_groups_that_has_lost_some_is_named(engine, make_env, caplog, left):
    env = make_env(group_size=2)
    path = env.run_dir / "groups.jsonl"
    async with open_run(env) as run:
        await work(run, FileSink(run, await open_group_file(run, path)), 2)
    first = path.read_bytes().splitlines(keepends=True)[0]
    path.unlink()
    if left is not None:
        path.write_bytes(first[:left])
    async with open_run(env) as run:
        await open_group_file(run, path)
        assert "was cut" in caplog.text
        caplog.clear()
        await open_group_file(run, path.with_name("others.jsonl"))
    assert "was cut" not in caplog.text, "another file never had them"


async def test_a_file_of_groups_without_such_a_note_is_read_whole(engine, make_env, caplog):
    env = make_env(group_size=2)
    path = env.run_dir / "groups.jsonl"
    async with open_run(env) as run:
        path.write_bytes(b"?" * 1000 + b"\n" + b"?" * 5 + b"\n")
        await open_group_file(run, path)
    assert [record.args[0] for record in caplog.records if "torn" in record.message] == [0, 1001]


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


async def test_a_group_with_equal_rewards_gets_more_members_until_they_differ_or_are_many(engine, make_env):
    env = make_env(group_size=2, equal_rewards="top_up")
    async with open_run(env) as run:
        sink = TrainerSink(run, Outbox(run.journal), RowPacker(2), None)
        group = await run.next_group()
        for members in (2, 3, 4, 5):
            await run.work(group, CountPace(run, 1), sink)
            assert (await run.queue.next()) is group
            assert len(group.members) == members
        await run.work(group, CountPace(run, 1), sink)
        assert (len(group.members), group.state) == (6, "equal")
    assert env.attempts.total() == 6


async def test_a_group_that_grew_goes_on_at_the_next_start(engine, make_env):
    env = make_env(group_size=2, equal_rewards="top_up")
    async with open_run(env) as run:
        group = await run.next_group()
        sink = TrainerSink(run, Outbox(run.journal), RowPacker(2), None)
        for _ in range(2):
            await run.work(group, CountPace(run, 1), sink)
            await run.queue.next()
    async with open_run(env) as run:
        again = await run.queue.next()
        assert (again.number, len(again.members)) == (group.number, 3)
        await run.work(again, CountPace(run, 1), TrainerSink(run, Outbox(run.journal), RowPacker(2), None))
        assert (await run.queue.next()) is again
        assert len(again.members) == 3, "it has as many as it was to have, and is asked for more"
        assert again.missing(again.size) == [3]


async def test_the_file_of_groups_has_the_rollouts_that_are_sent_and_none_made_before_them(engine, make_env):
    env = make_env(group_size=2, equal_rewards="resample")
    path = env.run_dir / "groups.jsonl"
    async with open_run(env) as run:
        sink = TrainerSink(run, Outbox(run.journal), RowPacker(2), await open_group_file(run, path))
        group = await run.next_group()
        for _ in range(3):
            await run.work(group, CountPace(run, 1), sink)
        assert group.state == "equal"
    (line,) = path.read_bytes().splitlines()
    written = json.loads(line)["generation_params"]["rollout_ids"]
    assert sorted(written) == sorted(one.id for one in group.members.values())


async def test_a_row_that_waited_for_others_until_the_trainer_is_too_far_is_not_sent(engine, make_env):
    env = make_env(group_size=2, equal_rewards="send", max_stale_steps=3)
    async with open_run(env) as run:
        outbox = Outbox(run.journal)
        sink = TrainerSink(run, outbox, RowPacker(2), None)
        for step, size in ((0, 1), (3, 2), (4, 1)):
            group = await run.next_group()
            group.grow(size)
            await run.work(group, CountPace(run, 9, step), sink)
        assert [packet.step for packet in await outbox.waiting()] == [4], "that of step 0 waits no more"
        assert (await count_states(run.journal))["stale"] == 1
        assert run.metrics.failures["trainer"] == 1


@pytest.mark.parametrize(
    ("estimator", "scores", "dropped", "said"),
    [
        ("group-std", (1.0, 1.0), 0, "all rewards are 1"),
        ("group-std", (1.0,), 1, "all rewards are 1, without 1 rollout with rows unlike the record"),
        ("none", (0.0, 1.0), 0, "its rewards differ, but --env.estimator none makes no advantage of that"),
    ],
)
async def test_a_group_without_advantages_says_why(engine, make_env, estimator, scores, dropped, said):
    env = make_env(group_size=2, estimator=estimator)
    async with open_run(env) as run:
        group = await run.next_group()
        scored = await run.fill(group, CountPace(run, 9))
        rows = [replace(row, score=score) for row, score in zip(scored.rows, scores, strict=False)]
        lost = [DroppedRow("a", 0, 5, "other ids")] * dropped
        sink = TrainerSink(run, Outbox(run.journal), RowPacker(2), None)
        await sink.take(group, replace(scored, rows=tuple(rows), dropped=tuple(lost)))
    (outcome,) = group_outcomes(env.run_dir)
    assert outcome.reason.startswith(said)
