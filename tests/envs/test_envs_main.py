"""`python -m envs`: any environment by its path."""

import os
import subprocess
import sys

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
