"""A certificate is right as long as no check is wrong."""

from envs.cli.checks import Certificate, Check, Status


def test_a_note_is_no_fault_and_every_check_has_a_line():
    found = Certificate([Check("rows", Status.OK, "exact"), Check("history", Status.NOTE, "two rows")])
    assert found.ok
    assert found.render().splitlines() == ["✓ rows     exact", "· history  two rows", "", "Rows would be right."]


def test_a_long_text_is_wrapped_between_words_behind_the_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    path = "/a/path/that/is/longer/than/the/terminal/is/wide"
    text = f"exact: 9 replies, 128 sampled tokens {path}\nand more"
    lines = Certificate([Check("rows", Status.OK, text)]).render().splitlines()
    assert lines[:4] == [
        "✓ rows  exact: 9 replies, 128 sampled",
        "        tokens",
        f"        {path}",
        "        and more",
    ]


def test_a_text_that_quotes_a_server_steers_no_terminal():
    assert Certificate([Check("rows", Status.OK, "it said \x1b[2J\x07no")]).render().startswith("✓ rows  it said no\n")


def test_one_wrong_check_is_enough():
    found = Certificate([Check("rows", Status.OK, "exact"), Check("tokenizer", Status.WRONG, "another")])
    assert not found.ok
    assert found.render().endswith("Training would be wrong: 1 ✗")
    assert found.to_json()["checks"][1] == {"name": "tokenizer", "status": "wrong", "text": "another", "data": {}}
