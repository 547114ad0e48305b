"""`python -m atropos_agent` is the command line, also beside a package that is named `envs`."""

import sys
from importlib.util import find_spec

from atropos_agent import __main__


def test_it_runs_the_software_engineering_environment(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["atropos-agent", "--help"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as of a command, not of `python -m pytest`
    assert __main__.command() == 0
    assert "atropos-agent COMMAND" in capsys.readouterr().out


def test_what_hides_a_package_is_told_with_status_2(monkeypatch, capsys):
    def hidden(*names):
        raise ImportError("/there/envs hides the package 'envs'")

    monkeypatch.setattr(__main__, "check_packages", hidden)
    assert __main__.command() == 2
    assert "hides the package" in capsys.readouterr().err


def test_it_finds_modules_of_the_working_directory_behind_all_others(monkeypatch, tmp_path):
    (tmp_path / "my_tools.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["atropos-agent", "--version"])
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    assert find_spec("my_tools") is None
    assert __main__.command() == 0
    assert find_spec("my_tools") is not None and sys.path[-1] == ""
