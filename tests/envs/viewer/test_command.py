"""`view`: the page, and one file of chosen rollouts."""

import socket

import pytest

from envs.viewer.command import main


def test_chosen_rollouts_become_one_file_that_needs_nothing_else(run_dir, tmp_path, capsys):
    path = tmp_path / "page.html"
    assert main([str(run_dir), "--export", str(path), "--group", "0"]) == 0
    assert "4 rollouts" in capsys.readouterr().out
    html = path.read_text()
    assert html.count('<details class="rollout"') == 4
    assert "the members of group 0" in html
    assert "src=" not in html
    assert 'href="http' not in html


def test_what_is_wrong_is_told_in_a_line(run_dir, tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert main([str(run_dir), "--export", str(tmp_path / "x.html"), "--step", "99"]) == 2
    assert "no rollout fits" in capsys.readouterr().err
    assert main([str(run_dir), "--latest", "3", "--step", "0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "--latest: says what --export writes; give --export FILE",
        "--step: says what --export writes; give --export FILE",
    ]
    with pytest.raises(SystemExit):
        main([str(run_dir), "--export", str(tmp_path)])
    assert "is there and is not a file" in capsys.readouterr().err
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "rollouts.jsonl").write_text('{"a": 1}\ntorn')
    assert main([str(tmp_path / "torn"), "--export", str(tmp_path / "x.html")]) == 2
    assert "it has no rollout that can be read" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(run_dir), "--tokenizer", str(tmp_path)])
    assert "no tokenizer.json" in capsys.readouterr().err


def test_a_port_of_another_program_is_named(run_dir, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main([str(run_dir), "--port", str(port)]) == 2
    assert f"--port {port}: Address already in use; give another" in capsys.readouterr().err
