"""The journal's file: damaged ones, and those of other versions."""

import contextlib
import errno
import fcntl
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from descriptors import used_up
from packets import draw, fill_outbox
from readers import reading_only, shared_folder

from envs.records.disk import LOCK
from envs.running import database
from envs.running.database import DirectoryInUse, RunDirectoryError, lock_directory, open_database
from envs.running.group import count_states, group_outcomes
from envs.running.journal import Journal
from envs.running.outbox import Outbox
from envs.types import GroupState


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
        while (ready := await outbox.next_packet()) is not None:
            assert ready.body == b"x" * 500
            await outbox.confirm(ready)
            sent += 1
        counts = await count_states(journal)
        number = (await draw(journal)).number
    assert counts["delivered"] == sent
    assert set(counts) <= {"delivered", "corrupt"}
    assert number == counts.total() <= 40, "every group that is known of is accounted for"


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(file, how):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(database.fcntl, "flock", refuse)
    why = r"without locks \(Function not impl.*give --env.run_dir on another"
    with pytest.raises(RunDirectoryError, match=why), lock_directory(tmp_path):
        pass


def test_a_directory_whose_lock_was_deleted_is_still_in_use(tmp_path):
    with lock_directory(tmp_path):
        (tmp_path / LOCK).unlink()
        with pytest.raises(DirectoryInUse), lock_directory(tmp_path):
            pass
    with lock_directory(tmp_path):
        pass


def test_a_file_system_that_locks_files_alone_will_do(tmp_path, monkeypatch):
    lock = fcntl.flock

    def lock_files(file, how):
        if isinstance(file, int):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(file, how)

    monkeypatch.setattr(database.fcntl, "flock", lock_files)
    with lock_directory(tmp_path), pytest.raises(DirectoryInUse), lock_directory(tmp_path):
        pass


async def test_a_file_that_can_not_be_opened_now_is_not_taken_for_damaged(tmp_path):
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(3))
    with used_up(), pytest.raises(RunDirectoryError, match=r"can't be opened now .*start again"):
        open_database(journal.path)
    async with Journal(tmp_path) as journal:
        assert await count_states(journal) == {"outbox": 3}
    assert not list(tmp_path.glob("*damaged*"))


async def test_of_a_large_file_what_is_worked_on_is_checked_and_the_rest_when_damage_is_met(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "CHECKED_WHOLE", 0)
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(20))
        await journal.write(lambda db: db.execute("UPDATE groups SET reason = ?", ("x" * 3000,)))
        sizes = "SELECT (rootpage - 1) * page_size FROM sqlite_master, pragma_page_size WHERE name = 'groups'"
        (root,) = await journal.read(lambda db: db.execute(sizes).fetchone())
    path = tmp_path / "state.db"
    data = bytearray(path.read_bytes())
    data[root : root + 100] = b"\xff" * 100
    path.write_bytes(data)
    with pytest.raises(RunDirectoryError, match="start again, which repairs it"):
        async with Journal(tmp_path) as journal:
            await draw(journal)
    async with Journal(tmp_path) as journal:
        outbox, sent = Outbox(journal), 0
        while (ready := await outbox.next_packet()) is not None:
            await outbox.confirm(ready)
            sent += 1
        counts = await count_states(journal)
    assert counts["delivered"] == sent == 20, "packets tell of their groups"


async def test_the_states_are_counted_as_they_change(tmp_path):
    rng = random.Random(3)
    async with Journal(tmp_path) as journal:
        groups = [await draw(journal) for _ in range(30)]
        for _ in range(200):
            state = rng.choice(list(GroupState))
            await rng.choice(groups).close(state, "at random")
            counted = await journal.read(
                lambda db: dict(db.execute("SELECT state, count(*) FROM groups GROUP BY state"))
            )
            assert await count_states(journal) == counted


@pytest.mark.parametrize(
    ("version", "told"), [(99, "by a later version of this package"), (4, "before version 0.2.0"), (0, "before")]
)
async def test_a_file_of_another_version_is_refused_by_name(tmp_path, version, told):
    async with Journal(tmp_path):
        pass
    db = sqlite3.connect(tmp_path / "state.db")
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(RunDirectoryError, match=told):
        async with Journal(tmp_path):
            pass
    with pytest.raises(RunDirectoryError, match=told):
        list(group_outcomes(tmp_path))


# Byte 128 of the index is SQLite's sign that somebody has it open; who finds it free cuts the file.
TAKES_THE_INDEX = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)"


def test_an_empty_file_is_not_taken_for_one_of_an_earlier_version(tmp_path):
    (tmp_path / "state.db").touch()
    with pytest.raises(RunDirectoryError, match="is empty; bring it back from a copy"), Journal.reading(tmp_path):
        pass


@pytest.mark.parametrize("left", ["closed", "open", "killed"])
async def test_a_run_of_another_user_is_read(left):
    with shared_folder() as directory, contextlib.ExitStack() as stack:
        async with Journal(directory) as journal:
            await fill_outbox(journal, range(3))
            if left == "killed":
                shutil.copytree(directory, directory / "copy")
            if left == "open":
                stack.enter_context(Journal.reading(directory)).execute("SELECT 1 FROM groups").fetchone()
        run = directory / "copy" if left == "killed" else directory
        stack.enter_context(reading_only(run))
        assert len(list(group_outcomes(run))) == 3


async def test_a_file_that_only_its_owner_may_read_is_no_damage():
    with shared_folder() as directory:
        async with Journal(directory) as journal:
            journal.path.chmod(0o000)
        with reading_only(directory), pytest.raises(RunDirectoryError, match="read it as its owner, or copy"):
            list(group_outcomes(directory))


def test_an_open_journals_index_is_locked_against_other_processes(tmp_path):
    for _ in range(2):
        db = open_database(tmp_path / "state.db")
        db.execute("SELECT count(*) FROM groups").fetchone()
        taken = subprocess.run(
            [sys.executable, "-c", TAKES_THE_INDEX, str(tmp_path / "state.db-shm")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "BlockingIOError" in taken.stderr
        db.close()


async def damaged_beside(directory, groups):
    """Make a journal of groups in the outbox, with damage in a table that holds nothing."""
    async with Journal(directory) as journal:
        await fill_outbox(journal, range(groups))
        place = "SELECT (rootpage - 1) * page_size FROM sqlite_master, pragma_page_size WHERE name = 'faults'"
        (root,) = await journal.read(lambda db: db.execute(place).fetchone())
    with journal.path.open("r+b") as file:
        file.seek(root)
        file.write(b"\xff" * 100)


@pytest.mark.parametrize("renamed", [None, 0, 1])
async def test_a_repair_that_was_killed_is_begun_again_or_ended(tmp_path, monkeypatch, renamed):
    class Killed(BaseException):
        pass

    real, left = Path.rename, [0] * (renamed or 0)

    def rename(path, to):
        if not left:
            raise Killed
        left.pop()
        return real(path, to)

    readable = database._readable_rows

    def half(db, table):
        if table == "packets":
            raise Killed
        return readable(db, table)

    await damaged_beside(tmp_path, 20)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(*((database, "_readable_rows", half) if renamed is None else (Path, "rename", rename)))
        open_database(tmp_path / "state.db")
    async with Journal(tmp_path) as journal:
        assert await count_states(journal) == {"outbox": 20}
        assert (await Outbox(journal).next_packet()).name == "p0"
    assert len(list(tmp_path.glob("state.damaged-*.db"))) == 1


async def test_a_packet_that_names_no_groups_is_lost_with_the_damage(tmp_path):
    await damaged_beside(tmp_path, 3)
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as db, db:
        db.execute("UPDATE packets SET rows = '{' WHERE id = 2")
    async with Journal(tmp_path) as journal:
        assert await count_states(journal) == {"outbox": 2, "corrupt": 1}
