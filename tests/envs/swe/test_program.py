"""The software engineering environment as a process: what is said before the large packages are loaded."""

import os
import signal
import subprocess
import sys
import time

import pytest

PYTHON = [sys.executable, "-m", "envs.swe"]


@pytest.mark.parametrize(
    "words", [["serve", "--help"], ["serve", "--env.group_sise=4"], ["doctor", "--nonsense=1"], ["--help"]]
)
def test_help_and_mistakes_load_none_of_the_large_packages(words):
    program = "import sys; from envs.swe.__main__ import main; main(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"torch", "transformers", "atroposlib", "openai", "wandb", "numpy", "aiohttp", "aiodocker"}


def test_commands_that_only_read_runs_load_nothing_of_models():
    program = "import sys; from importlib import import_module; from envs.swe.__main__ import MODULES\n"
    program += "for name in sys.argv[1:]: import_module(MODULES[name])\nprint(*sys.modules)"
    words = ["agents", "export", "groups", "join", "view"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"torch", "transformers", "atroposlib", "openai"}


def test_a_command_may_have_two_words():
    done = subprocess.run([*PYTHON, "agents", "update", "--help"], capture_output=True, text=True, check=True)
    assert "agents update [-h]" in done.stdout


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5])
def test_ctrl_c_while_it_loads_ends_it_without_a_traceback(after_s, tmp_path):
    words = [*PYTHON, "process", "--openai.base_url=http://127.0.0.1:9/v1", f"--env.run_dir={tmp_path}"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "80"})
    assert process.stderr is not None and "loading" in process.stderr.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert process.returncode in (130, -signal.SIGINT)


@pytest.mark.parametrize("words", [["envs", "--help"], ["envs.swe", "--help"], ["envs.swe", "serve", "--help-all"]])
def test_what_nobody_reads_or_no_disk_takes_is_no_traceback(words):
    reading, writing = os.pipe()
    os.close(reading)
    full = "the disk is full ([Errno 28] No space left on device); free some of it, or write to another\n"
    for output, said in [(writing, ""), (os.open("/dev/full", os.O_WRONLY), full)]:
        done = subprocess.run(
            [sys.executable, "-m", *words], check=False, stdout=output, stderr=subprocess.PIPE, text=True
        )
        os.close(output)
        assert (done.returncode, done.stderr) == (1, said)
