"""A disk that is full: everything waits, and nothing keeps the process from ending when it is asked to."""

import contextlib
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from programs import Program
from scripted_engine import ScriptedEngine
from small_disk import small_disk
from stopwatch import Stopwatch
from sums import right
from waiting import in_time

HERE = Path(__file__).parent


@pytest.fixture
def engine(smollm2_tokenizer, tokenizer_folder):
    with ScriptedEngine(right, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.1) as engine:
        yield engine


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def start(engine, tmp_path, disk):
    """Starts the program in a directory of the small disk."""

    def start(groups):
        command = [
            HERE / "sums_program.py",
            "process",
            f"--openai.base_url={engine.url}",
            f"--env.run_dir={disk.path / 'run'}",
            f"--env.total_steps={groups}",
            "--env.group_size=2",
            "--env.max_concurrent_rollouts=4",
            "--env.shutdown_s=2",
        ]
        paths = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
        return Program(command, stdout=tmp_path / "log", env={**os.environ, "PYTHONPATH": paths})

    return start


def wait_for(condition, process):
    assert in_time(lambda: condition() or process.poll() is not None)
    assert condition(), "the process ended by itself"


def groups(run):
    with contextlib.closing(sqlite3.connect(run / "state.db")) as db:
        return db.execute("SELECT * FROM groups").fetchall()


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("signals", [1, 2])
def test_a_full_disk_keeps_no_signal_waiting_and_the_next_start_goes_on(start, disk, tmp_path, signals):
    log, groups = tmp_path / "log", disk.path / "run/groups.jsonl"
    first = start(10**6)
    wait_for(lambda: lines(groups) >= 2, first)
    disk.fill()
    wait_for(lambda: "until it can be written" in log.read_text(), first)
    time.sleep(1.0)  # so that all that is to wait does
    watch = Stopwatch()
    for _ in range(signals):
        first.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    assert first.wait(120) != 0
    assert watch.seconds < (15 if signals == 1 else 5), "shutdown_s, and the time to close"
    assert "because the run ends" in log.read_text() or "ended at once" in log.read_text()
    written = lines(groups)
    disk.make_room()
    second = start(written + 3)
    assert second.wait(120) == 0, log.read_text()
    assert lines(groups) == written + 3


def test_when_there_is_room_again_the_run_goes_on_by_itself(start, disk, tmp_path):
    log, groups = tmp_path / "log", disk.path / "run/groups.jsonl"
    process = start(12)
    wait_for(lambda: lines(groups) >= 2, process)
    disk.fill()
    wait_for(lambda: "until it can be written" in log.read_text(), process)
    disk.make_room()
    assert process.wait(120) == 0, log.read_text()
    assert lines(groups) == 12


def test_a_start_on_a_full_disk_says_so_and_takes_nothing_for_damaged(start, disk, tmp_path):
    process = start(2)
    assert process.wait(120) == 0
    run, log = disk.path / "run", tmp_path / "log"
    before = groups(run)
    disk.fill()
    process = start(4)
    assert in_time(lambda: process.poll() is not None or "until it can be written" in log.read_text())
    assert process.poll() is None or "make room" in log.read_text(), "it waits, or says what to do"
    disk.make_room()
    assert not list(run.glob("state.damaged*"))
    assert groups(run)[: len(before)] == before
    if process.poll() is not None:
        process = start(4)
    assert process.wait(120) == 0
    assert lines(run / "groups.jsonl") == 4
