"""Processes that are found by a variable in their environment."""

import os
import subprocess
import time
import uuid

import pytest
from stopwatch import Stopwatch

from sandboxes.local.sweep import ProcessTimestamp, kill_marked


@pytest.fixture
def marker():
    return f"ATROPOS_TEST_MARK={uuid.uuid4().hex}"


def start(script: str, marker: str | None = None) -> subprocess.Popen[bytes]:
    name, _, value = (marker or "OTHER=1").partition("=")
    return subprocess.Popen(["/bin/sh", "-c", script], env=os.environ | {name: value}, start_new_session=True)


def test_the_marked_ones_and_all_they_started_are_killed(marker):
    marked = start("setsid env -i sleep 12321 & sleep 12321", marker)
    other = start("sleep 12321")
    time.sleep(0.3)
    kill_marked(marker)
    assert marked.wait(120) == -9
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_marker_is_the_beginning_of_a_value(marker):
    one = start("sleep 12321", f"{marker}.1")
    time.sleep(0.1)
    kill_marked(marker)
    assert one.wait(120) == -9


def test_what_is_older_than_a_moment_is_spared(marker):
    older = start("sleep 12321", marker)
    time.sleep(0.1)
    moment = ProcessTimestamp.now(pid=0)
    newer = start("sleep 12321", marker)
    time.sleep(0.1)
    kill_marked(marker, since=moment)
    assert newer.wait(120) == -9
    assert older.poll() is None
    kill_marked(marker, since=ProcessTimestamp.now(older.pid))
    assert older.wait(120) == -9, "the one that a moment names counts as newer"


def test_a_server_that_is_older_may_go_on_starting_processes(marker, tmp_path):
    ticks = tmp_path / "ticks"
    server = start(f"while :; do echo tick >>{ticks}; sleep 0.02; done", marker)
    while not ticks.exists():
        time.sleep(0.02)
    time.sleep(0.1)
    moment = ProcessTimestamp.now(pid=0)
    watch = Stopwatch()
    for _ in range(20):
        kill_marked(marker, since=moment)
    assert watch.seconds < 5, "there is nothing to kill, again and again"
    before = len(ticks.read_text())
    while len(ticks.read_text()) == before:
        time.sleep(0.02)
    kill_marked(marker)
    assert server.wait(120) == -9
