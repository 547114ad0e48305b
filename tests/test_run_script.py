"""What `./run` shows while it sets up: how long it takes still, and an error in its full width."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "run"
LONG = "x" * 500


def steadily(folder, seconds, command, **options):
    """Run a command as the script does."""
    (folder / ".venv").mkdir(exist_ok=True)
    functions = re.findall(r"^(?:steadily|report_progress)\(\) \{\n.*?^\}\n", RUN.read_text(), re.MULTILINE | re.DOTALL)
    script = "\n".join(["set -eu", *functions, f"steadily Packages {seconds} .venv/log {command}"])
    return subprocess.run(["sh", "-c", script], cwd=folder, check=False, **options)


def in_a_terminal(folder, seconds, command):
    """What a terminal of 80 columns is sent."""
    ours, theirs = pty.openpty()
    try:
        steadily(folder, seconds, command, stdout=theirs, stderr=theirs)
        return os.read(ours, 2**16).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_has_one_line_with_an_estimate(tmp_path):
    said = in_a_terminal(tmp_path, 100, f"sh -c 'echo Collecting {LONG}; sleep 3'")
    drawn = said.split("\r\033[K")
    assert re.match(r"Packages, \d s, about \d\d s left: Collecting x+$", drawn[1])
    assert all(len(line) < 80 for line in drawn)
    assert "\n" not in "".join(drawn[:-1])


def test_what_it_took_is_what_is_expected_the_next_time(tmp_path):
    in_a_terminal(tmp_path, 100, "true")
    assert "longer than expected" in in_a_terminal(tmp_path, 100, "sleep 3")


@pytest.mark.parametrize("status", [0, 3])
def test_what_failed_is_shown_in_its_full_width(tmp_path, status):
    done = steadily(tmp_path, 1, f"sh -c 'echo {LONG}; exit {status}'", capture_output=True, text=True)
    assert done.returncode == status
    assert done.stdout == "Packages ...\n"
    assert done.stderr == (f"{LONG}\n" if status else "")
    assert (tmp_path / ".venv/.took-Packages").exists() == (not status)


def test_a_machine_without_a_gpu_is_told_so_before_anything_is_set_up(tmp_path):
    script = tmp_path / "run"
    script.write_text(RUN.read_text())
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", script, "gpu"], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "`nvidia-smi -L` names none" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_gpu_command_ends_with_the_log_of_a_vllm_that_ended(tmp_path):
    (tmp_path / ".venv-gpu/bin").mkdir(parents=True)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv-gpu/.made").touch()
    server = tmp_path / ".venv-gpu/bin/vllm"
    server.write_text("#!/bin/sh\necho no room on the GPU\nexit 1\n")
    server.chmod(0o755)
    gpu = re.search(r"^gpu\(\) \{\n.*?^\}\n", RUN.read_text(), re.MULTILINE | re.DOTALL)[0]
    script = f"set -eu\npython=false\n{gpu}gpu --model small"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "no room on the GPU\nvLLM ended; its whole log is .venv/vllm-serve.log\n"
