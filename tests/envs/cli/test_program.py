"""The command line of an environment: its commands, under the name that the user calls it by."""

import sys

import pytest
from sums import Sums

from envs.cli.program import parse, run
from envs.options import UsageError
from envs.swe.program import PROGRAM


@pytest.mark.parametrize(
    ("command", "argv", "said"),
    [
        ("process", ["--env.total_steps=-1"], "process has no trainer that says how many"),
        ("serve", ["--against", "eval-0.json"], "serve makes no evaluation"),
        ("process", ["--inspect_log", "log.json"], "process makes no evaluation"),
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
