from pathlib import Path


def test_icons_is_a_directory():
    assert Path("/app/site/images/icons").is_dir() is True
