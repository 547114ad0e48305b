from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


def test_final_has_the_text_of_the_draft():
    assert lines("final.md") == ["# Minutes", "", "We agreed on Tuesday."]


def test_draft_is_gone():
    assert Path("/app/draft.md").exists() is False
