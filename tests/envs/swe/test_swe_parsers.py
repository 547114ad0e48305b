"""The parsers of `tasks` and `rejudge`."""

import pytest

from envs.swe.parsers import rejudge_parser, tasks_parser


def test_attack_leaves_the_options_of_evaluate_to_it():
    own, theirs = ["attack", "folder", "--repeats", "2"], ["--openai.model_name", "m", "--env.seed=1"]
    options = tasks_parser().parse_args([*own, *theirs])
    assert (options.command, options.folder, options.repeats, options.model) == ("attack", "folder", 2, theirs)


def test_so_does_shell():
    options = tasks_parser().parse_args(["shell", "folder", "id", "--judge", "--env.judge", "http://a/v1"])
    assert (options.id, options.judge, options.model) == ("id", True, ["--env.judge", "http://a/v1"])


def test_no_other_command_takes_them(capsys):
    with pytest.raises(SystemExit) as ended:
        tasks_parser().parse_args(["check", "--env.seed=1"])
    assert ended.value.code == 2 and "--env.seed: there is no such option" in capsys.readouterr().err


def test_hosts_that_can_not_be_read_are_refused(capsys):
    with pytest.raises(SystemExit):
        tasks_parser().parse_args(["check", "--hosts", "ftp://a"])
    assert "ftp://a" in capsys.readouterr().err


def test_rejudge_keeps_the_runs_own_setting_unless_another_is_given():
    options = rejudge_parser().parse_args(["run"])
    assert options.tasks is options.reward is options.sandbox is options.hosts is options.base_image is None
