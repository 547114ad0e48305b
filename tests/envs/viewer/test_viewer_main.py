"""The process of a run's page."""

import programs


def test_it_explains_itself_and_needs_a_socket(run_dir):
    told = programs.run(["-m", "envs.viewer", run_dir])
    assert told.returncode == 2
    assert "--socket" in told.stderr
