"""`python -m sandboxes setup|reap|images`."""

import os
import signal
import socket
import subprocess
import sys

import programs
import pytest


def sandboxes(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return programs.run(["-m", "sandboxes", *arguments], env={"PATH": "/bin", **environment})


def test_help_names_all_commands():
    done = sandboxes("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("setup", "reap", "images"))


def test_without_a_daemon_it_says_what_to_do():
    for command in ("setup", "reap", "images"):
        done = sandboxes(command, DOCKER_HOST="unix:///no/such.sock")
        assert done.returncode == 1
        assert "unix:///no/such.sock" in done.stderr
        assert "python -m sandboxes setup" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("days", ["-1", "nan"])
def test_images_that_are_not_made_yet_are_not_removed(days):
    done = sandboxes("images", "--remove-older", days, DOCKER_HOST="unix:///no/such.sock")
    assert done.returncode == 2 and "--remove-older" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_in_order_when_the_daemon_is_silent(tmp_path, number):
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "docker.sock"))
        daemon.listen()
        daemon.settimeout(120)
        environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}
        files = {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}
        process = programs.Program(["-m", "sandboxes", "reap"], **files, env=environment)
        connection, _ = daemon.accept()
        with connection:
            process.send_signal(number)
            status = process.wait(120)
    assert (status, (tmp_path / "err").read_text()) == (130, "interrupted\n")


@pytest.mark.docker
def test_a_reader_that_closes_the_pipe_is_no_traceback(base_image):
    told, tells = os.pipe()
    os.close(told)
    done = subprocess.run(
        [sys.executable, "-m", "sandboxes", "images"], stdout=tells, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(tells)
    assert (done.returncode, done.stderr) == (1, "")
