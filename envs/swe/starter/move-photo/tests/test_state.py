from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


def test_photo_is_in_the_archive():
    assert lines("archive/photo.txt") == ["a bridge at night"]


def test_photo_is_no_longer_where_it_was():
    assert Path("/app/photo.txt").exists() is False
