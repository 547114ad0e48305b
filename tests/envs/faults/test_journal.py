"""The journal: what is on disk survives kills, damage and a full disk, and every group is accounted for."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from envs.delivery.packing import Packet
from envs.records.atif import Place
from envs.running.database import RunDirectoryError
from envs.running.group import Group, count_states, fates, unfinished
from envs.running.journal import Journal
from envs.running.outbox import Outbox
from envs.types import GroupState, Reward, Rollout, Task, Verdict

PLACE = Place(0, 10, 7)


def packet(number, *, rows=4, step=0):
    return Packet(f"p{number}", step, {number: rows}, b"x" * 500)


def a_task(number):
    return Task(f"task-{number}", "")


async def draw(journal):
    return await Group.draw(journal, a_task)


async def fill_outbox(journal, numbers):
    outbox = Outbox(journal)
    for number in numbers:
        group = await draw(journal)
        assert group.number == number
        await outbox.add(group, [packet(number)], [])
    return outbox


async def test_a_group_goes_from_its_task_to_its_confirmation(tmp_path):
    async with Journal(tmp_path) as journal:
        group, outbox = await draw(journal), Outbox(journal)
        await group.add(1, Rollout("r", group.task, None, Verdict(1.0, ""), Reward(0.5)), PLACE)
        (left,) = await unfinished(journal)
        assert (left.number, left.task, left.members) == (0, "task-0", {1: PLACE})
        await outbox.add(group, [packet(group.number)], [])
        assert await count_states(journal) == {"outbox": 1}
        await outbox.confirm(await outbox.next_ready())
        assert await count_states(journal) == {"delivered": 1}
        assert await outbox.next_ready() is None
    (fate,) = fates(tmp_path)
    assert (fate.number, fate.task, fate.state, list(fate.rewards)) == (0, "task-0", "delivered", [0.5])
    assert fate.reason == "confirmed by the trainer API"


async def test_a_group_whose_rows_went_into_two_packets_is_delivered_with_the_second(tmp_path):
    async with Journal(tmp_path) as journal:
        groups, outbox = [await draw(journal) for _ in range(2)], Outbox(journal)
        first, second = Packet("a", 0, {0: 3, 1: 1}, b"a"), Packet("b", 0, {1: 4}, b"b")
        await outbox.add(groups[0], [], [Packet("w", 0, {0: 3}, b"w")])
        await outbox.add(groups[1], [first, second], [])
        assert await outbox.waiting() == [], "what waited is in a packet now"
        await outbox.confirm(await outbox.next_ready())
        assert (await count_states(journal))["delivered"] == 1
        await outbox.confirm(await outbox.next_ready())
        assert (await count_states(journal))["delivered"] == 2


@pytest.mark.parametrize(("queued", "again", "aside"), [(3, 3, 0), (4, 0, 4), (6, 2, 4)])
async def test_what_the_api_lost_is_sent_again_unless_it_may_have_been_in_a_batch(tmp_path, queued, again, aside):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(queued))
        for _ in range(queued):
            await outbox.confirm(await outbox.next_ready())
        assert await outbox.lost_by_api(batch=4) == (again, aside)
        assert await count_states(journal) == {
            state: count for state, count in (("outbox", again), ("uncertain", aside)) if count
        }
        assert len(list((tmp_path / "aside").glob("uncertain-*"))) == aside
    kept = [tmp_path / fate.evidence for fate in fates(tmp_path, [GroupState.UNCERTAIN])]
    assert len(kept) == aside
    assert all(path.is_file() for path in kept), "the evidence is where the journal says"


async def test_what_the_api_has_handed_on_is_not_sent_again(tmp_path):
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(3))
        for _ in range(3):
            await outbox.confirm(await outbox.next_ready())
        await outbox.handed_on(left=1)
        assert await outbox.lost_by_api(batch=4) == (1, 0)


async def test_a_damaged_packet_costs_its_own_group(tmp_path):
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(3))
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("UPDATE packets SET body = ? WHERE id = 1", (b"y" * 500,))
    db.close()
    async with Journal(tmp_path) as journal:
        assert (await Outbox(journal).next_ready()).rows == {1: 4}
        assert await count_states(journal) == {"corrupt": 1, "outbox": 2}


@pytest.mark.parametrize("seed", range(12))
async def test_a_damaged_file_costs_what_can_not_be_read_of_it(tmp_path, seed):
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(40))
    path, rng = tmp_path / "state.db", random.Random(seed)
    data = bytearray(path.read_bytes())
    if seed % 3 == 0:
        del data[rng.randrange(4096, len(data)) :]
    for _ in range(3):
        place = rng.randrange(100, len(data))
        data[place : place + 50] = rng.randbytes(50)
    path.write_bytes(data)
    async with Journal(tmp_path) as journal:
        outbox, sent = Outbox(journal), 0
        while (ready := await outbox.next_ready()) is not None:
            assert ready.body == b"x" * 500
            await outbox.confirm(ready)
            sent += 1
        counts = await count_states(journal)
        number = (await draw(journal)).number
    assert counts["delivered"] == sent
    assert set(counts) <= {"delivered", "corrupt"}
    assert number == counts.total() <= 40, "every group that is known of is accounted for"


async def test_a_full_disk_makes_everything_wait_and_loses_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Journal, "full_pause_s", 0.05)
    async with Journal(tmp_path) as journal:
        outbox = await fill_outbox(journal, range(3))
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        group = await draw(journal)
        big = Packet("big", 0, {group.number: 4}, b"z" * 100_000)
        writing = asyncio.create_task(outbox.add(group, [big], []))
        await asyncio.sleep(0.3)
        assert not writing.done()
        assert "everything waits until there is room" in caplog.text
        journal._db.execute("PRAGMA max_page_count = 1000000")
        await writing
        assert await count_states(journal) == {"outbox": 4}


async def test_a_directory_is_worked_in_by_one_process(tmp_path):
    async with Journal(tmp_path):
        with pytest.raises(RunDirectoryError, match=r"give another --env\.run_dir"):
            async with Journal(tmp_path):
                pass


async def test_a_run_is_continued_only_with_the_options_that_decide_about_it(tmp_path):
    async with Journal(tmp_path) as journal:
        assert not await journal.identify({"seed": 0, "group_size": 8})
        assert await journal.identify({"seed": 0, "group_size": 8})
        with pytest.raises(RunDirectoryError, match="group_size is 4, it was 8"):
            await journal.identify({"seed": 0, "group_size": 4})


async def test_turns_that_were_damaged_are_not_repeated(tmp_path):
    async with Journal(tmp_path) as journal:
        number = (await draw(journal)).number
        for body in (b"one", b"two"):
            journal.add_turn(number, 0, body)
        assert await journal.turns(number, 0) == [b"one", b"two"]
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("UPDATE turns SET body = ? WHERE body = ?", (b"twp", b"two"))
    db.close()
    async with Journal(tmp_path) as journal:
        assert await journal.turns(number, 0) == [b"one"]


def test_what_was_noted_survives_kill_9(tmp_path):
    script = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from envs.delivery.packing import Packet
        from envs.running.group import Group
        from envs.running.journal import Journal
        from envs.running.outbox import Outbox
        from envs.types import Task

        async def main():
            async with Journal(Path(sys.argv[1])) as journal:
                outbox = Outbox(journal)
                for i in range(100000):
                    group = await Group.draw(journal, lambda n: Task(f"task-{n}", ""))
                    await outbox.add(group, [Packet(str(i), 0, {group.number: 4}, b"x" * 5000)], [])
                    print(group.number, flush=True)

        asyncio.run(main())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with process:
        noted = next(int(line) for line in process.stdout if int(line) >= 20)
        os.kill(process.pid, signal.SIGKILL)

    async def found():
        async with Journal(tmp_path) as journal:
            outbox = Outbox(journal)
            await outbox.next_ready()
            return await count_states(journal), outbox.ready

    counts, ready = asyncio.run(found())
    assert counts["outbox"] == ready >= noted + 1
    assert counts["working"] <= 1


VERSION_0_1 = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE groups (
    number INTEGER PRIMARY KEY, task TEXT NOT NULL, state TEXT NOT NULL, rows INTEGER NOT NULL DEFAULT 0);
CREATE TABLE members (
    number INTEGER NOT NULL, slot INTEGER NOT NULL, place INTEGER NOT NULL, size INTEGER NOT NULL,
    crc INTEGER NOT NULL, PRIMARY KEY (number, slot));
CREATE TABLE turns (
    number INTEGER NOT NULL, slot INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE INDEX turns_of ON turns (number, slot);
CREATE TABLE packets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL,
    rows TEXT NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE faults (task TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO groups VALUES (0, 'a', 'delivered', 0), (1, 'b', 'flat', 0), (2, 'c', 'failed', 0), (3, 'd', 'spooled', 4);
INSERT INTO groups VALUES (4, 'e', 'working', 0);
INSERT INTO members VALUES (4, 1, 0, 10, 7);
INSERT INTO turns VALUES (4, 0, x'01', 2768625435);
INSERT INTO packets VALUES (1, 'ready', 'p', 0, '{"3": 4}', x'01', 2768625435);
"""


async def test_a_run_of_version_0_1_is_gone_on_with(tmp_path):
    db = sqlite3.connect(tmp_path / "state.db")
    db.executescript(VERSION_0_1)
    db.close()
    with pytest.raises(RunDirectoryError, match="another version"):
        list(fates(tmp_path))
    async with Journal(tmp_path) as journal:
        assert await count_states(journal) == dict.fromkeys(
            ("delivered", "equal", "quarantined", "outbox", "working"), 1
        )
        (left,) = await unfinished(journal)
        assert left.members == {1: PLACE}
        assert await journal.turns(4, 0) == [b"\x01"]
        outbox = Outbox(journal)
        assert (await outbox.next_ready()).rows == {3: 4}
        assert (await draw(journal)).number == 5
    assert {fate.reason for fate in fates(tmp_path, [GroupState.EQUAL])} == {
        "noted by version 0.1, which gave no reason"
    }


async def test_a_file_of_a_later_version_is_refused_by_name(tmp_path):
    async with Journal(tmp_path):
        pass
    db = sqlite3.connect(tmp_path / "state.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(RunDirectoryError, match="a later version of this package"):
        async with Journal(tmp_path):
            pass


async def test_the_fates_of_groups_can_be_read_while_the_run_goes_on(tmp_path):
    with pytest.raises(RunDirectoryError, match="holds no run"):
        list(fates(tmp_path))
    async with Journal(tmp_path) as journal:
        first, second = await draw(journal), await draw(journal)
        await first.close(GroupState.EQUAL, "all rewards are 1")
        assert [fate.reason for fate in fates(tmp_path)] == ["all rewards are 1", "its rollouts are being made"]
        assert [fate.number for fate in fates(tmp_path, [GroupState.WORKING])] == [second.number]
        assert [fate.number for fate in fates(tmp_path, task="task-0")] == [first.number]
