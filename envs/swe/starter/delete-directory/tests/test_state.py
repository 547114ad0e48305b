from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


def test_cache_is_gone():
    assert Path("/app/cache").exists() is False


def test_main_is_kept():
    assert lines("main.txt") == ["keep me"]
