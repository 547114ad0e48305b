from pathlib import Path


def test_ready_is_an_empty_file():
    assert Path("/app/ready").read_bytes() == b""
