"""`python -m envs`: any environment by its path."""

import pytest

from envs.__main__ import main


def test_without_an_environment_it_says_what_it_takes(capsys):
    assert main([]) == 2
    assert "package.module:name" in capsys.readouterr().out


def test_swe_is_the_software_engineering_environment(capsys):
    assert main(["swe", "--help"]) == 0
    assert "doctor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("swo", "there is none of that name"),
        ("no_such_module:X", "can't be imported"),
        ("json:loads", "is no environment; give swe, or package.module:name"),
    ],
)
def test_what_is_no_environment_is_refused(path, said, capsys):
    assert main([path, "serve"]) == 2
    assert said in capsys.readouterr().err
