"""The command line of an environment: its commands, under the name that the user calls it by."""

import sys

import pytest
from sums import Sums

from atropos_agent import __version__
from envs.__main__ import main as envs
from envs.cli.program import parse, read_env_file, run
from envs.options import UsageError
from envs.swe.__main__ import main as swe
from envs.swe.program import PROGRAM


@pytest.mark.parametrize(
    ("command", "argv", "said"),
    [
        ("process", ["--env.total_steps=-1"], "process has no trainer that says how many"),
        ("serve", ["--against", "eval-0.json"], "serve makes no evaluation"),
        ("process", ["--inspect_log", "log.json"], "process makes no evaluation"),
        ("process", ["--env.steps_per_eval=2"], "--env.steps_per_eval: process makes no evaluation"),
        ("evaluate", ["--env.tags=terminal"], "--env.tags: it selects tasks for training; --env.eval_tags"),
        ("serve", ["--env.group_size=1"], "no group would reach the trainer; give 2 or more"),
    ],
)
def test_what_does_nothing_in_a_command_is_refused(command, argv, said):
    with pytest.raises(UsageError, match=said):
        parse(PROGRAM, command, argv)


@pytest.mark.parametrize("name", ["serve", "process", "evaluate", "doctor", "groups"])
def test_an_environment_of_ones_own_has_every_command_under_its_own_name(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sums.py"])
    try:
        status = run(Sums, [name, "--nonsense"], prog="python sums.py")
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    err = capsys.readouterr().err
    assert f"python sums.py {name}" in err and "envs.swe" not in err


def test_an_unknown_command_gets_the_nearest_one(capsys):
    assert run(Sums, ["serv"], prog="python sums.py") == 2
    assert "there is no command 'serv'; did you mean serve?" in capsys.readouterr().err


def test_a_group_of_one_is_served_to_a_trainer_with_a_baseline_of_its_own():
    options = parse(PROGRAM, "serve", ["--env.group_size=1", "--env.equal_rewards=send"])
    assert options.env.group_size == 1


def test_a_group_of_one_that_a_teacher_weighs_is_served():
    taught = ["--env.teacher=http://127.0.0.1:9/v1", "--env.teacher_weight=1", "--env.group_size=1"]
    assert parse(PROGRAM, "serve", taught).env.equal_rewards == "drop"


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_an_env_file_that_is_no_text_is_named(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_bytes(b"NAME=\xff\xfe\n")
    assert run(PROGRAM, [command]) == 2
    err = capsys.readouterr().err
    assert f"{tmp_path / '.env'} can't be read: it is no text in UTF-8" in err
    assert "Traceback" not in err


def test_an_env_folder_is_no_file_of_variables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").mkdir()  # as Python's own virtual environments are called by some
    assert parse(PROGRAM, "serve", []).engines
    assert read_env_file() is None


@pytest.mark.parametrize("main", [swe, envs, lambda argv: run(Sums, argv, prog="sums.py")])
def test_every_command_line_tells_the_version(main, capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"atropos-agent {__version__}\n"


def test_ctrl_c_ends_every_command_of_an_environment_of_ones_own_in_a_word(monkeypatch, capsys):
    def interrupted(program, argv):
        raise KeyboardInterrupt

    monkeypatch.setattr("envs.cli.program.doctor", interrupted)
    assert run(Sums, ["doctor"], prog="python mine.py") == 130
    assert capsys.readouterr().err == "interrupted\n"
