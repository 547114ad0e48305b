"""The loop of a session's shell; what it does for commands is tested in test_sessions.py."""

import shutil
import subprocess

import pytest

from sandboxes.shell import LOOP, session_argv


@pytest.mark.parametrize("shell", ["bash", "dash", "busybox"])
def test_every_shell_can_read_it(shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    command = [program, *(["sh"] if shell == "busybox" else []), "-n", "-c", LOOP]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_sessions_directory_is_the_last_argument_as_the_executor_expects():
    assert session_argv("/home", "/dev/shm/x")[-2:] == ["/home", "/dev/shm/x"]


def test_the_loop_is_not_among_the_arguments_so_that_pkill_does_not_find_it():
    assert "while" not in " ".join(session_argv("/home", "/dir"))
