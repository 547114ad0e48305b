"""`tasks convert` on the command line."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.swe.tasks import main
from envs.tasks.harbor import load_tasks
from envs.types import BadTasks


def make_task(root: Path, toml: str = "", name: str = "sample") -> None:
    """A Harbor task directory with what each must have."""
    for path, text in {
        "task.toml": toml,
        "instruction.md": "Do it.",
        "environment/Dockerfile": "FROM scratch",
        "tests/test.sh": "true",
    }.items():
        (root / name / path).parent.mkdir(parents=True, exist_ok=True)
        (root / name / path).write_text(text)


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


@pytest.mark.parametrize("text", ["", "\n", "[]"])
def test_a_file_without_a_row_ends_it(tmp_path, capsys, text):
    path = tmp_path / ("rows.json" if text == "[]" else "rows.jsonl")
    path.write_text(text)
    assert main(["convert", "functions", str(path), "--out", str(tmp_path / "out")]) == 2
    assert f"{path} holds nothing to convert" in capsys.readouterr().err


def test_a_tag_that_no_task_has_ends_the_check_with_those_that_there_are(tmp_path, capsys):
    make_task(tmp_path, '[metadata]\ntags = ["one"]\n')
    assert main(["check", str(tmp_path), "--only", "typo"]) == 2
    assert "no task has one of the tags typo (--only); there are one" in capsys.readouterr().err


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


def two_tasks(root):
    """A task that can be used, and one that can't."""
    make_task(root, name="good")
    make_task(root, "[environment]\ngpus = 1\n", name="bad")


def test_a_check_may_leave_bad_tasks_out(tmp_path, capsys, monkeypatch):
    two_tasks(tmp_path)
    checked = []

    async def check(backend, tasks, **options):
        checked.extend(task.id for task in tasks)
        return []

    monkeypatch.setattr("envs.swe.tasks.check_tasks", check)
    monkeypatch.setattr("envs.swe.tasks.docker_backend", lambda hosts, base_image: nullcontext())
    assert main(["check", str(tmp_path)]) == 2
    assert "--skip-bad leaves them out" in capsys.readouterr().err
    assert checked == []
    assert main(["check", str(tmp_path), "--skip-bad"]) == 0
    assert "- task bad: task.toml: environment: gpus" in capsys.readouterr().err
    assert checked == ["good"]


def test_a_run_leaves_bad_tasks_out_unless_it_is_to_refuse_them(tmp_path, caplog):
    two_tasks(tmp_path)
    train, _ = SWEEnv.load_tasks(SWEEnvConfig(tasks=str(tmp_path)))
    assert [task.id for task in train] == ["good"]
    assert "- task bad: task.toml: environment: gpus" in caplog.text
    with pytest.raises(BadTasks, match="1 tasks in"):
        SWEEnv.load_tasks(SWEEnvConfig(tasks=str(tmp_path), bad_tasks="refuse"))


def test_a_format_that_is_not_known_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["convert", "paper", "rows", "--out", "out"])
    assert "invalid choice: 'paper'" in capsys.readouterr().err
