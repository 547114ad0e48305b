"""A Python that loads the hook pays for nothing that it doesn't use."""

import subprocess
import sys

import pytest
from planted_modules import hooked


@pytest.mark.parametrize(
    "code, loaded",
    [
        ("import json", False),
        ("import unittest", True),
        ("import _pytest.config", True),
        ("__verifier__.reached(1)", True),
    ],
)
def test_the_reporter_is_loaded_where_a_runner_is(tmp_path, code, loaded):
    command = f"import sys; {code}; print('verifier_reporter' in sys.modules)"
    env = hooked(tmp_path, 1)  # nobody listens there
    ran = subprocess.run([sys.executable, "-c", command], env=env, capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == (str(loaded), "")
