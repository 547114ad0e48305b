"""Options for the environment that demo and learn start."""

from __future__ import annotations

import argparse

import pytest

from envs.lab.given import add_env_option, merge_settings, uses_daemon


def given(*words: str) -> list[tuple[str, str]]:
    parser = argparse.ArgumentParser()
    add_env_option(parser)
    found: list[tuple[str, str]] = parser.parse_args([part for word in words for part in ("--env", word)]).env
    return found


def test_options_get_the_names_of_the_environment() -> None:
    assert merge_settings(given("sandbox=kubernetes", "pods.namespace=boxes")) == {
        "env.sandbox": "kubernetes",
        "env.pods.namespace": "boxes",
    }


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        given("sandbx=kubernetes")
    assert "'sandbx=kubernetes' is no option of the environment" in capsys.readouterr().err


def test_other_sandboxes_need_no_docker_daemon_of_this_machine() -> None:
    assert uses_daemon(given())
    assert uses_daemon(given("sandbox=docker", "max_steps=4"))
    assert not uses_daemon(given("sandbox=kubernetes"))
    assert not uses_daemon(given("hosts=ssh://a"))
