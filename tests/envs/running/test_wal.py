"""A write-ahead log that was damaged is told of, whatever SQLite makes of it."""

import os
import sqlite3
import subprocess
import sys

import pytest

from envs.running.database import REPAIRED, RunDirectoryError, open_database
from envs.running.wal import Frames, frames_of

KILLED = """
import os, sys
from pathlib import Path
from envs.running.database import open_database

db = open_database(Path(sys.argv[1]))
for number in range(20):
    db.execute("INSERT INTO run VALUES (?, ?)", (str(number), "x" * 500))
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def killed(tmp_path):
    """The database of a process that was killed."""
    path = tmp_path / "state.db"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", KILLED, path], check=False, env=paths)
    assert frames_of(path).committed > 20
    return path


def cut(log):
    os.truncate(log, log.stat().st_size // 2)


def spoil(log):
    middle = log.stat().st_size // 2
    with log.open("r+b") as file:
        file.seek(middle)
        file.write(b"garbage" * 100)


@pytest.mark.parametrize("damage", [cut, spoil, os.unlink], ids=["truncated", "garbage", "gone"])
def test_what_was_lost_with_it_is_told_until_somebody_has_decided(killed, damage):
    damage(killed.with_name("state.db-wal"))
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match=r"state.db-wal was damaged: .* delete .*state.db.rolled-back"):
            open_database(killed)
    killed.with_name("state.db.rolled-back").unlink()
    db = open_database(killed)
    if damage is not os.unlink:
        assert db.execute("SELECT 1 FROM run WHERE key = ?", (REPAIRED,)).fetchone(), "it is asked for once"
    db.close()


def test_a_log_that_is_whole_costs_nothing(killed):
    for _ in range(2):
        db = open_database(killed)
        assert db.execute("SELECT count(*) FROM run").fetchone() == (20,)
        db.close()


def test_of_an_earlier_boot_nothing_can_be_told(killed):
    later = killed.with_name("state.db-shm").stat().st_mtime + 100
    assert frames_of(killed, later) == Frames(0, 0)


def test_what_the_database_has_itself_is_not_lost(tmp_path):
    assert Frames(10, 10).lost(Frames(0, 0)) == 0
    assert Frames(10, 4).lost(Frames(7, 4)) == 3
    db = sqlite3.connect(tmp_path / "plain.db")
    db.execute("CREATE TABLE t (x)")
    db.close()
    assert frames_of(tmp_path / "plain.db") == Frames(0, 0)
