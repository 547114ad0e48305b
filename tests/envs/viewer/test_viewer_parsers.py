"""The parser of `view`."""

import pytest

from envs.viewer.parsers import view_parser


def test_a_folder_stands_for_the_tokenizer_in_it(tmp_path):
    (tmp_path / "tokenizer.json").touch()
    for given in (tmp_path, tmp_path / "tokenizer.json"):
        assert view_parser().parse_args(["run", "--tokenizer", str(given)]).tokenizer == tmp_path / "tokenizer.json"


def test_a_folder_without_one_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        view_parser().parse_args(["run", "--tokenizer", str(tmp_path)])
    assert "no tokenizer.json, and no folder with one" in capsys.readouterr().err


def test_an_address_for_others_is_refused_with_the_way_to_reach_the_page(capsys):
    with pytest.raises(SystemExit):
        view_parser().parse_args(["run", "--host", "0.0.0.0"])
    said = capsys.readouterr().err
    assert "on this machine only" in said and "ssh -L" in said
