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
