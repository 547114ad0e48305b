from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


def test_run_is_executable_by_its_owner():
    assert (Path("/app/run.sh").stat().st_mode & 0o100) == 0o100


def test_run_is_untouched():
    assert lines("run.sh") == ["#!/bin/sh", "echo running"]
