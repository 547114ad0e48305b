"""`tasks convert` on the command line."""

import json

import pytest

from envs.swe.tasks import main
from envs.tasks.harbor import load_tasks

ROW = {
    "task_id": "HumanEval/1",
    "entry_point": "one",
    "prompt": "def one():\n",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}


def test_converted_tasks_are_directories_that_every_command_takes(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
    assert main(["convert", "functions", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out")]) == 0
    assert [task.id for task in load_tasks(tmp_path / "out")] == ["HumanEval-1"]
    assert "1 tasks are in" in capsys.readouterr().out


def test_rows_that_can_not_be_used_end_it_with_their_reason(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW | {"test": ""}))
    assert main(["convert", "functions", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out")]) == 2
    assert "rows.jsonl:1: test is missing or empty" in capsys.readouterr().err


def test_rows_that_can_not_be_used_may_be_left_out(tmp_path, capsys):
    bad = ROW | {"task_id": "HumanEval/2", "test": ""}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(ROW)}\n{json.dumps(bad)}\n")
    convert = ["convert", "functions", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out")]
    assert main(convert) == 2
    assert "--skip-bad leaves them out" in capsys.readouterr().err
    assert main([*convert, "--skip-bad"]) == 0
    assert [task.id for task in load_tasks(tmp_path / "out")] == ["HumanEval-1"]
    said = capsys.readouterr()
    assert "1 tasks are in" in said.out
    assert "rows.jsonl:2: test is missing or empty" in said.err


def test_a_format_that_is_not_known_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["convert", "paper", "rows", "--out", "out"])
    assert "invalid choice: 'paper'" in capsys.readouterr().err
