"""`python -m sandboxes setup|reap|images`."""

import subprocess
import sys


def sandboxes(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandboxes", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/bin", **environment})


def test_help_names_all_commands():
    done = sandboxes("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("setup", "reap", "images"))


def test_without_a_daemon_it_says_what_to_do():
    for command in ("setup", "reap", "images"):
        done = sandboxes(command, DOCKER_HOST="unix:///no/such.sock")
        assert done.returncode == 1
        assert "python -m sandboxes setup" in done.stderr and "Traceback" not in done.stderr
