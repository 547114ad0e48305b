"""The journal: what is on disk survives kills, damage and a full disk."""

import asyncio
import contextlib
import sqlite3
import textwrap

import pytest
from packets import draw, fill_outbox
from programs import Program, lines_of

from envs.delivery.packing import Packet
from envs.running.database import RunDirectoryError
from envs.running.group import count_states
from envs.running.journal import Journal
from envs.running.outbox import Outbox


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
        assert "everything waits until it can be written" in caplog.text
        journal._db.execute("PRAGMA max_page_count = 1000000")
        await writing
        assert await count_states(journal) == {"outbox": 4}


async def test_a_run_that_is_asked_to_stop_does_not_wait_for_a_full_disk(tmp_path, caplog):
    stopping = []
    async with Journal(tmp_path, lambda: bool(stopping)) as journal:
        await fill_outbox(journal, range(3))
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        group = await draw(journal)
        big = Packet("big", 0, {group.number: 4}, b"z" * 100_000)
        writing = asyncio.create_task(Outbox(journal).add(group, [big], []))
        await asyncio.sleep(0.3)
        assert not writing.done()
        stopping.append(True)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await asyncio.wait_for(writing, 2)
        journal.add_turn(group.number, 0, b"z" * 100_000)
        await asyncio.sleep(2 * journal.gather_s)
    assert "Traceback" not in caplog.text, "its reason is no mistake of ours"
    async with Journal(tmp_path) as journal:
        assert await count_states(journal) == {"outbox": 3, "working": 1}, "the group is gone on with"


async def test_a_file_that_another_program_holds_is_waited_for(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Journal, "full_pause_s", 0.05)
    async with Journal(tmp_path) as journal:
        journal._db.execute("PRAGMA busy_timeout = 10")
        with contextlib.closing(sqlite3.connect(journal.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            drawing = asyncio.create_task(draw(journal))
            await asyncio.sleep(0.3)
            assert not drawing.done()
            assert "locked; everything waits" in caplog.text
            other.execute("ROLLBACK")
        assert (await drawing).number == 0


async def test_a_directory_is_worked_in_by_one_process(tmp_path):
    async with Journal(tmp_path):
        with pytest.raises(RunDirectoryError, match=r"give another --env\.run_dir"):
            async with Journal(tmp_path):
                pass


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
    script = tmp_path / "script.py"
    text = """
        import asyncio, sys
        from pathlib import Path
        from envs.delivery.packing import Packet
        from envs.running.group import Group
        from envs.running.journal import Journal
        from envs.running.outbox import Outbox
        from envs.tasks.sampler import Draw
        from envs.types import Task

        async def main():
            async with Journal(Path(sys.argv[1])) as journal:
                outbox = Outbox(journal)
                for i in range(100000):
                    group = await Group.draw(journal, lambda n: Draw(Task(f"task-{n}", "")))
                    await outbox.add(group, [Packet(str(i), 0, {group.number: 4}, b"x" * 5000)], [])
                    print(group.number, flush=True)

        asyncio.run(main())
        """
    script.write_text(textwrap.dedent(text))
    out = tmp_path / "out"
    process = Program([script, tmp_path / "run"], stdout=out)
    noted = next(int(line) for line in lines_of(out, process) if int(line) >= 20)
    process.kill()
    process.wait()

    async def found():
        async with Journal(tmp_path / "run") as journal:
            outbox = Outbox(journal)
            await outbox.next_packet()
            return await count_states(journal), outbox.ready

    counts, ready = asyncio.run(found())
    assert counts["outbox"] == ready >= noted + 1
    assert counts["working"] <= 1
