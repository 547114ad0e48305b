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

from envs.delivery.sender import Parcels
from envs.records.atif import Place
from envs.running.journal import Journal, Packet, RunDirectoryError

PLACE = Place(0, 10, 7)


def packet(number, *, rows=4, step=0):
    return Packet(f"p{number}", step, {number: rows}, b"x" * 500)


async def spool(journal, numbers):
    for number in numbers:
        assert await journal.start_group(lambda n: f"task-{n}") == number
        await journal.finish_group(number, "spooled", packets=[packet(number)])


async def test_a_group_goes_from_its_task_to_its_confirmation(tmp_path):
    async with Journal(tmp_path) as journal:
        number = await journal.start_group(lambda n: f"task-{n}")
        await journal.add_member(number, 1, PLACE)
        (left,) = await journal.unfinished()
        assert (left.number, left.task, left.members) == (0, "task-0", {1: PLACE})
        await journal.finish_group(number, "spooled", packets=[packet(number)])
        assert await journal.counts() == {"spooled": 1}
        ready = await journal.next_ready()
        await journal.confirm(ready)
        assert await journal.counts() == {"delivered": 1}
        assert await journal.next_ready() is None


async def test_a_group_whose_rows_went_into_two_packets_is_delivered_with_the_second(tmp_path):
    async with Journal(tmp_path) as journal:
        for _ in range(2):
            await journal.start_group(lambda n: f"task-{n}")
        first, second = Packet("a", 0, {0: 3, 1: 1}, b"a"), Packet("b", 0, {1: 4}, b"b")
        await journal.finish_group(0, "spooled", waiting=[Packet("w", 0, {0: 3}, b"w")])
        await journal.finish_group(1, "spooled", packets=[first, second])
        assert await journal.waiting() == [], "what waited is in a packet now"
        await journal.confirm(await journal.next_ready())
        assert (await journal.counts())["delivered"] == 1
        await journal.confirm(await journal.next_ready())
        assert (await journal.counts())["delivered"] == 2


@pytest.mark.parametrize(("queued", "again", "aside"), [(3, 3, 0), (4, 0, 4), (6, 2, 4)])
async def test_what_the_api_lost_is_sent_again_unless_it_may_have_been_in_a_batch(tmp_path, queued, again, aside):
    async with Journal(tmp_path) as journal:
        await spool(journal, range(queued))
        for _ in range(queued):
            await journal.confirm(await journal.next_ready())
        assert await journal.lost_by_api(batch=4) == (again, aside)
        assert await journal.counts() == {
            state: count for state, count in (("spooled", again), ("uncertain", aside)) if count
        }
        assert len(list((tmp_path / "aside").glob("uncertain-*"))) == aside


async def test_what_the_api_has_handed_on_is_not_sent_again(tmp_path):
    async with Journal(tmp_path) as journal:
        await spool(journal, range(3))
        for _ in range(3):
            await journal.confirm(await journal.next_ready())
        await journal.handed_on(left=1)
        assert await journal.lost_by_api(batch=4) == (1, 0)


async def test_a_damaged_packet_costs_its_own_group(tmp_path):
    async with Journal(tmp_path) as journal:
        await spool(journal, range(3))
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("UPDATE packets SET body = ? WHERE id = 1", (b"y" * 500,))
    db.close()
    async with Journal(tmp_path) as journal:
        assert (await journal.next_ready()).rows == {1: 4}
        assert await journal.counts() == {"corrupt": 1, "spooled": 2}


@pytest.mark.parametrize("seed", range(12))
async def test_a_damaged_file_costs_what_can_not_be_read_of_it(tmp_path, seed):
    async with Journal(tmp_path) as journal:
        await spool(journal, range(40))
    path, rng = tmp_path / "state.db", random.Random(seed)
    data = bytearray(path.read_bytes())
    if seed % 3 == 0:
        del data[rng.randrange(4096, len(data)) :]
    for _ in range(3):
        place = rng.randrange(100, len(data))
        data[place : place + 50] = rng.randbytes(50)
    path.write_bytes(data)
    async with Journal(tmp_path) as journal:
        sent = 0
        while (ready := await journal.next_ready()) is not None:
            assert ready.body == b"x" * 500
            await journal.confirm(ready)
            sent += 1
        counts = await journal.counts()
        number = await journal.start_group(lambda n: f"task-{n}")
    assert counts["delivered"] == sent
    assert set(counts) <= {"delivered", "corrupt"}
    assert number == counts.total() <= 40, "every group that is known of is accounted for"


async def test_a_full_disk_makes_everything_wait_and_loses_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Journal, "full_pause_s", 0.05)
    async with Journal(tmp_path) as journal:
        await spool(journal, range(3))
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        number = await journal.start_group(lambda n: f"task-{n}")
        big = Packet("big", 0, {number: 4}, b"z" * 100_000)
        writing = asyncio.create_task(journal.finish_group(number, "spooled", packets=[big]))
        await asyncio.sleep(0.3)
        assert not writing.done()
        assert "everything waits until there is room" in caplog.text
        journal._db.execute("PRAGMA max_page_count = 1000000")
        await writing
        assert await journal.counts() == {"spooled": 4}


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
        number = await journal.start_group(lambda n: "t")
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
        from envs.running.journal import Journal, Packet

        async def main():
            async with Journal(Path(sys.argv[1])) as journal:
                for i in range(100000):
                    number = await journal.start_group(lambda n: f"task-{n}")
                    await journal.finish_group(number, "spooled", packets=[Packet(str(i), 0, {number: 4}, b"x" * 5000)])
                    print(number, flush=True)

        asyncio.run(main())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with process:
        noted = next(int(line) for line in process.stdout if int(line) >= 20)
        os.kill(process.pid, signal.SIGKILL)

    async def found():
        async with Journal(tmp_path) as journal:
            return await journal.counts(), await journal.spooled()

    counts, (ready, _) = asyncio.run(found())
    assert counts["spooled"] == ready >= noted + 1
    assert counts["working"] <= 1


def test_rows_that_wait_for_others_go_on_waiting_after_a_restart():
    def group(name, rows):
        params = {"rollout_ids": [name] * rows, "segments": [0] * rows, "steps": [0] * rows}
        params |= {"policy_versions": [None] * rows, "group_id": name, "task_id": "t", "step": 0}
        keys = ("tokens", "masks", "scores", "advantages", "inference_logprobs")
        return {key: [[1]] * rows for key in keys} | {"messages": None, "generation_params": params}

    packets, waiting = Parcels(4).add(7, group("a", 6), step=0)
    assert [dict(p.rows) for p in packets] == [{7: 4}]
    assert [dict(p.rows) for p in waiting] == [{7: 1}, {7: 1}]
    packets, waiting = Parcels(4, waiting).add(8, group("b", 2), step=0)
    assert [dict(p.rows) for p in packets] == [{7: 2, 8: 2}]
    assert not waiting
