"""How the gate, `.ci/run`, ends: with the checks that failed at first, however they passed in the end."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

GATE = Path(__file__).parents[1] / ".ci/run"
FLAKY = ["tests/a.py::test_one[x y]", "tests/b.py::test_two"]


def program(file, *lines):
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(["#!/bin/sh", *lines]))
    file.chmod(0o755)


def fails_once(checkout, name, status=1):
    """Return the lines of a program that fails the first time it is run."""
    begun = checkout / f"{name}-begun"
    return f"[ -e '{begun}' ] || {{ : >'{begun}'; echo {name} is away; exit {status}; }}", f"echo {name} holds"


@pytest.fixture
def checkout(tmp_path):
    """A checkout with the gate, in which all checks pass."""
    for name in ("run", ".ci/binaries", ".ci/wheel"):
        program(tmp_path / name, f"echo {name} holds")
    shutil.copy(GATE, tmp_path / ".ci/run")
    return tmp_path


def has_failed(checkout, *tests):
    cache = checkout / ".pytest_cache/v/cache/lastfailed"
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps(dict.fromkeys(tests, True), indent=2))


def gate(checkout):
    done = subprocess.run([checkout / ".ci/run"], check=False, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def test_a_gate_at_which_all_passes_says_nothing_more(checkout):
    status, said = gate(checkout)
    assert (status, said) == (0, ["run holds", ".ci/binaries holds", ".ci/wheel holds"])


def test_tests_that_pass_alone_are_named_at_the_end(checkout):
    program(checkout / "run", *fails_once(checkout, "run"))
    has_failed(checkout, *FLAKY)
    status, said = gate(checkout)
    assert status == 0
    assert said[-3:] == ["2 failed at first and passed alone:", *(f"    {name}" for name in FLAKY)]


def test_what_is_run_again_is_tried_by_the_same_turns(checkout, monkeypatch):
    monkeypatch.delenv("CORPUS_SEED")
    program(checkout / "run", 'echo "$CORPUS_SEED" >>seeds', *fails_once(checkout, "run"))
    has_failed(checkout, *FLAKY)
    assert gate(checkout)[0] == 0
    first, again = (checkout / "seeds").read_text().split()
    assert first == again


def test_a_wheel_that_is_built_the_second_time_is_named_and_its_error_is_shown(checkout):
    program(checkout / ".ci/wheel", *fails_once(checkout, "registry"))
    status, said = gate(checkout)
    assert status == 0
    assert "registry is away" in said
    assert said[-2:] == ["1 failed at first and passed alone:", "    .ci/wheel"]


@pytest.mark.parametrize(
    ("ends", "tests"), [(1, [f"tests/a.py::test_{n}" for n in range(6)]), (2, FLAKY)], ids=["too many", "interrupted"]
)
def test_what_is_no_accident_is_not_run_again(checkout, ends, tests):
    program(checkout / "run", *fails_once(checkout, "run", ends))
    has_failed(checkout, *tests)
    status, said = gate(checkout)
    assert status == ends
    assert "passed alone" not in "\n".join(said)


def test_a_test_that_fails_twice_fails_the_gate(checkout):
    program(checkout / "run", "exit 1")
    has_failed(checkout, *FLAKY)
    status, said = gate(checkout)
    assert status == 1
    assert "passed alone" not in "\n".join(said)
