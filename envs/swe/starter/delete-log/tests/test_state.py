from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


def test_old_log_is_gone():
    assert Path("/app/old.log").exists() is False


def test_new_log_is_kept():
    assert lines("new.log") == ["started"]
