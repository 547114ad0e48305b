"""`python -m atropos_agent` is the command line, also beside a package that is named `envs`."""

from atropos_agent import __main__


def test_it_runs_the_software_engineering_environment(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["atropos-agent", "--help"])
    assert __main__.command() == 0
    assert "python -m envs.swe COMMAND" in capsys.readouterr().out


def test_what_hides_a_package_is_told_with_status_2(monkeypatch, capsys):
    def hidden(*names):
        raise ImportError("/there/envs hides the package 'envs'")

    monkeypatch.setattr(__main__, "check_packages", hidden)
    assert __main__.command() == 2
    assert "hides the package" in capsys.readouterr().err
