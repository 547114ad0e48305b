"""A Python that loads the hook pays for nothing that it doesn't use."""

import subprocess
import sys

import pytest
from planted_modules import INSIDE, hooked


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


def test_a_module_of_its_name_beside_the_solution_does_not_run_in_its_place(tmp_path):
    hooked(tmp_path / "home", 1)
    (tmp_path / "verifier_hook.py").write_text("print('mine')")
    line = (INSIDE / "verifier_hook.pth").read_text().replace("/verifier'", f"{tmp_path}/home'")
    command = [sys.executable, "-c", f"{line}print(verifier_hook.__file__)"]
    ran = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == f"{tmp_path}/home/verifier_hook.py", ran.stderr
