"""Long tests take turns: over a few runs each is tried, and in each run some of every file."""

import json
import re
from pathlib import Path

import pytest
import turns

LONG = [*(f"tests/a.py::test_{number}" for number in range(7)), "tests/b.py::one", "tests/c.py::x", "tests/c.py::y"]


def tried(monkeypatch, seed):
    monkeypatch.setenv(turns.VARIABLE, str(seed))
    return set(LONG) - turns.waiting(LONG)


def test_each_has_its_turn(monkeypatch):
    assert set().union(*(tried(monkeypatch, seed) for seed in range(6))) == set(LONG)


@pytest.mark.parametrize("seed", range(6))
def test_of_each_file_a_third_is_tried_and_never_none(monkeypatch, seed):
    found = tried(monkeypatch, seed)
    files = [sum(test.startswith(file) for test in found) for file in ("tests/a", "tests/b", "tests/c")]
    assert files in ([3, 1, 1], [2, 1, 1])


def test_what_took_long_is_noted_and_what_was_not_run_stays(monkeypatch, tmp_path):
    monkeypatch.setattr(turns, "LONG", tmp_path / "long.json")
    turns.LONG.write_text(json.dumps({"quick now": 9, "not run": 12}))

    def report(test, seconds):
        return pytest.TestReport(test, ("", 0, ""), {}, "passed", None, "call", duration=seconds)

    turns.note_long([report("quick now", 1.0), report("long", 3.0), report("long", 2.0), "no report"])
    assert turns.long_tests() == {"long": 5, "not run": 12}


def test_what_is_noted_is_there():
    root = Path(__file__).parents[1]
    gone = []
    for test in turns.long_tests():
        file, *_, name = test.split("[", 1)[0].split("::")
        if not (root / file).exists() or not re.search(rf"def {name}\b", (root / file).read_text()):
            gone.append(test)
    assert not gone
