"""The model of a preset, made or found in a process of its own."""

from pathlib import Path

from envs.lab import models


def test_the_folder_of_a_known_model_is_printed(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    assert models.main([str(tmp_path)]) == 0
    assert Path(capsys.readouterr().out.strip()) == tmp_path


def test_a_model_that_is_nowhere_ends_with_a_sentence(tmp_path, capsys):
    missing = tmp_path / "nothing"
    assert models.main([str(missing)]) == 1
    assert f"model {missing} can't be had: " in capsys.readouterr().err
