"""Stopping a run in good order, and at once."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from itertools import zip_longest

import pytest
from stopwatch import Stopwatch

from envs.running.stopping import NoPlace, StopRequest, run_to_end


def test_the_first_signal_waits_for_what_runs_and_the_second_does_not():
    stopping = StopRequest()
    stopping.working = True
    assert stopping.ask()
    assert stopping.requested
    assert not stopping.ask()


def test_where_nothing_runs_there_is_nothing_to_wait_for():
    assert not StopRequest().ask()


async def test_a_command_in_a_notebook_is_refused_with_the_remedy():
    began = []

    async def work():
        began.append(1)

    with pytest.raises(NoPlace, match=r"an event loop runs here already.*await envs.functions.running.run"):
        run_to_end(work())
    with pytest.raises(NoPlace, match="the main thread alone"):
        await asyncio.to_thread(lambda: run_to_end(work()))
    assert not began


SCRIPT = """
import asyncio, signal, sys, time
from envs.running.stopping import SignalHandler

async def stuck(how, end):
    asked = asyncio.Event()

    def stop():
        print("stop", flush=True)
        if how == "good":
            asked.set()

    end.follow(stop, lambda: print("now", flush=True))
    print("runs", flush=True)
    while how == "blocked":
        time.sleep(0.1)  # not longer: a signal just before the call does not end it
    await asked.wait()

if sys.argv[1] == "waiting":  # also in a script's background or under nohup, which ignore them
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
with SignalHandler(closing_s=float(sys.argv[2])) as end:
    end.hurry_s = 6.0  # on a busy machine a thread may wait for seconds
    asyncio.run(stuck(sys.argv[1], end))
time.sleep(2.5)
print("whole")
"""


@pytest.mark.parametrize(
    ("closing_s", "signals", "said"),
    [
        (6.0, [signal.SIGTERM], ["stop"]),
        (60.0, [signal.SIGTERM, signal.SIGTERM], ["stop", "now"]),
        (60.0, [signal.SIGINT, signal.SIGTERM], ["stop", "now"]),
        (60.0, [signal.SIGHUP, signal.SIGTERM], ["stop", "now"]),
        (60.0, [signal.SIGTERM, signal.SIGINT, signal.SIGINT], ["stop", "now"]),
    ],
    ids=["one", "two", "Ctrl-C, then SIGTERM", "SIGHUP, then SIGTERM", "three"],
)
def test_a_process_that_is_held_up_ends_all_the_same(closing_s, signals, said):
    command = [sys.executable, "-c", SCRIPT, "waiting", str(closing_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        watch = Stopwatch()
        for number, line in zip_longest(signals, said):
            process.send_signal(number)
            # Of two signals of one kind that are sent before the first is heard, one is heard.
            assert line is None or process.stdout.readline() == f"{line}\n"
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert watch.seconds < 20
    assert out == ""
    assert "ended at once" in err


@pytest.mark.parametrize(("closing_s", "signals"), [(1.0, 1), (3600.0, 2)])
def test_a_loop_that_is_blocked_hears_every_signal(closing_s, signals):
    command = [sys.executable, "-c", SCRIPT, "blocked", str(closing_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        assert process.stderr.readline() == f"asked to end: it closes what is open, in {closing_s:g} s at most\n"
        assert process.wait(120) == 130
        process.communicate()


def test_a_process_that_ends_in_time_takes_nothing_with_it():
    command = [sys.executable, "-c", SCRIPT, "good", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert (process.returncode, out.split()) == (0, ["stop", "whole"]), "nothing ends it later"


TO_ANOTHER_THREAD = """
import asyncio, signal, threading
from envs.running.stopping import SignalHandler

async def waiting(end):
    asked = asyncio.Event()
    end.follow(asked.set, asked.set)
    other = threading.Thread(target=threading.Event().wait, daemon=True)
    other.start()
    threading.Timer(0.5, signal.pthread_kill, [other.ident, signal.SIGTERM]).start()
    await asked.wait()
    print("heard", flush=True)

with SignalHandler(closing_s=60.0) as end:
    asyncio.run(waiting(end))
"""


def test_a_signal_that_does_not_interrupt_the_loops_waiting_is_heard():
    """As one that comes just before the loop waits, which can't be timed."""
    command = [sys.executable, "-c", TO_ANOTHER_THREAD]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "heard\n"), ran.stderr


def test_under_nohup_a_terminal_that_closes_ends_nothing():
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", SCRIPT, "good", "60"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().splitlines() == ["stop", "whole"]


WORK = """
import asyncio, sys
from envs.running.stopping import run_to_end

async def work(leaves):
    try:
        print("runs", flush=True)
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(leaves)
        print("tidied", flush=True)

try:
    run_to_end(work(float(sys.argv[1])), closing_s=1.0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("leaves", "said", "status"), [("0.1", "tidied\ninterrupted\n", 0), ("600", "", 130)])
def test_work_that_is_no_run_tidies_up_in_a_bounded_time(number, leaves, said, status):
    command = [sys.executable, "-c", WORK, leaves]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (status, said)
    assert err.startswith("asked to end: it closes what is open, in 1 s at most\n") and "Traceback" not in err


LOADING = """
import tempfile, time
from envs.running.stopping import exit_on_interrupt

with exit_on_interrupt():
    scratch = tempfile.TemporaryDirectory()
    print("loads", flush=True)
    time.sleep(600)
"""


def test_what_imports_make_in_the_temporary_folder_goes_when_loading_is_interrupted(tmp_path):
    command, env = [sys.executable, "-c", LOADING], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as one:
        assert one.stdout.readline() == "loads\n"
        assert [*tmp_path.iterdir()] != []
        one.send_signal(signal.SIGINT)
        assert one.wait(timeout=120) == 130
    assert [*tmp_path.iterdir()] == []


ALARMED = """
import asyncio, os, signal
from envs.running.stopping import SignalHandler

async def closes(end):
    asked = asyncio.Event()
    end.follow(asked.set, print)
    signal.alarm(1)
    os.kill(os.getpid(), signal.SIGTERM)
    await asked.wait()
    await asyncio.sleep(1.5)
    print("closed")

with SignalHandler(closing_s=30.0) as end:
    asyncio.run(closes(end))
"""


def test_the_alarm_that_ray_sets_at_a_signal_does_not_end_what_closes():
    assert (
        subprocess.run([sys.executable, "-c", ALARMED], check=True, capture_output=True, text=True).stdout == "closed\n"
    )
