from pathlib import Path


def test_results_is_a_directory():
    assert Path("/app/results").is_dir() is True
