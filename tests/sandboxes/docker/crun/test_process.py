"""A process of crun's, played by other programs."""

import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from sandboxes.docker.crun.process import CrunProcess, make_sealed_copy, spawn

FAKE = f"""#!{sys.executable}
import os, sys
assert sys.argv[-1] == "name" and "--bundle=" in sys.argv[-2], sys.argv
os.write(1, os.read(0, 10).upper())
sys.exit(70)
"""


async def test_the_container_has_the_stream_and_its_end_is_told(tmp_path):
    crun = tmp_path / "crun"
    crun.write_text(FAKE)
    crun.chmod(0o755)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        container = CrunProcess(spawn(crun, tmp_path, tmp_path, "name", theirs))
        ours.send(b"hello")
        assert ours.recv(10) == b"HELLO"
        assert await container.wait(10) == 70
        assert await container.close(10)


async def test_what_this_process_ignores_a_container_does_not(tmp_path):
    crun = tmp_path / "crun"
    crun.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    crun.chmod(0o755)
    ours, theirs = socket.socketpair()
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGHUP, signal.SIGINT)]
    try:
        with ours, theirs:
            container = CrunProcess(spawn(crun, tmp_path, tmp_path, "name", theirs))
            assert await container.wait(10) == 0
            ignored = int(ours.recv(100).split()[1], 16)
            assert ignored & ~(3 << 31) == 0, "but for two of the C library's own"
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def test_a_program_is_run_from_a_copy_that_nobody_can_change(tmp_path):
    program = tmp_path / "program"
    shutil.copy("/bin/echo", program)
    copy = make_sealed_copy(program)
    program.unlink()
    assert subprocess.check_output([f"/proc/self/fd/{copy}", "well"], pass_fds=[copy]) == b"well\n"
    with pytest.raises(OSError):
        os.write(copy, b"x")
    os.close(copy)


async def test_a_crun_that_does_not_end_is_killed():
    asleep = subprocess.Popen(["sleep", "600"], start_new_session=True)
    container = CrunProcess(asleep.pid)
    first = subprocess.Popen(["sleep", "600"])
    container.note_first_process(first.pid)
    assert not await container.close(0.1)
    assert first.wait(120) == -9, "the first process was to end before"
    assert await container.wait(10) == -9
    asleep.returncode = -9  # waited for by the container


async def test_a_first_process_that_is_gone_is_as_good_as_killed():
    first = subprocess.Popen(["true"])
    container = CrunProcess(os.posix_spawn("/bin/true", ["true"], {}))
    container.note_first_process(first.pid)
    first.wait()
    container.kill()
    assert await container.wait(10) == 0
    with pytest.raises(OSError):
        os.pidfd_open(container.pid)
