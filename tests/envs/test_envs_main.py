"""`python -m envs`: any environment by its path."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from envs.__main__ import main


def test_without_an_environment_it_says_what_it_takes(capsys):
    assert main([]) == 2
    assert "package.module:name" in capsys.readouterr().out


def test_swe_is_the_software_engineering_environment(capsys):
    assert main(["swe", "--help"]) == 0
    assert "doctor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("swo", "there is none of that name"),
        ("no_such_module:X", "can't be imported"),
        ("json:loads", "is no environment; give swe, or package.module:name"),
    ],
)
def test_what_is_no_environment_is_refused(path, said, capsys):
    assert main([path, "serve"]) == 2
    assert said in capsys.readouterr().err


def test_what_is_not_installed_and_not_needed_is_not_complained_about():
    """transformers prints that there is no PyTorch as soon as it is imported."""
    program = "import envs, transformers"
    env = {**os.environ, "USE_TORCH": "0"}
    env.pop("TRANSFORMERS_NO_ADVISORY_WARNINGS", None)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert "PyTorch" not in done.stderr


@pytest.mark.parametrize("module", ["atropos_agent.cpu_engine", "envs.lab.models", "envs.lab.trainer", "envs.viewer"])
def test_ctrl_c_while_a_module_is_loaded_is_no_traceback(module, tmp_path):
    for slow in ("torch", "uvicorn"):
        (tmp_path / f"{slow}.py").write_text("import signal, sys\nsignal.raise_signal(signal.SIGINT)\nsys.exit(3)\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-m", module], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    ended = 3 if module == "envs.viewer" else -signal.SIGINT  # the run ends its page
    assert (done.returncode, done.stderr) == (ended, "")
