"""The process of a run's page."""

import subprocess
import sys


def test_it_explains_itself_and_needs_a_socket(run_dir):
    told = subprocess.run(
        [sys.executable, "-m", "envs.viewer", str(run_dir)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert "--socket" in told.stderr
