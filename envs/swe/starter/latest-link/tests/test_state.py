from pathlib import Path


def test_latest_leads_to_v2():
    path = Path("/app/latest")
    assert path.is_symlink() is True
    assert str(path.resolve()) == "/app/v2"
