"""Long tests take turns: of five runs with neighbouring seeds each is tried in one."""

import json
import re
from pathlib import Path

import pytest
import turns

LONG = [*(f"tests/a.py::test_{number}" for number in range(10)), "tests/b.py::one", "tests/c.py::x", "tests/c.py::y"]


def tried(monkeypatch, seed):
    monkeypatch.setenv(turns.VARIABLE, str(seed))
    return set(LONG) - turns.waiting(LONG)


def test_each_has_its_turn(monkeypatch):
    found = [test for seed in range(5) for test in tried(monkeypatch, seed)]
    assert sorted(found) == sorted(LONG)


@pytest.mark.parametrize("seed", range(10))
def test_a_fifth_is_tried_of_all_and_of_a_file_with_many(monkeypatch, seed):
    found = tried(monkeypatch, seed)
    assert len(found) in (2, 3)
    assert sum(test.startswith("tests/a") for test in found) == 2


@pytest.mark.parametrize("entries", [1, 4, 28, 113])
def test_each_entry_of_a_table_has_its_turn(monkeypatch, entries):
    table, found = {str(number): number for number in range(entries)}, set()
    for seed in range(entries):
        monkeypatch.setenv(turns.VARIABLE, str(seed))
        tried = turns.share(table, 3)
        assert 1 <= len(tried) <= 3
        found |= tried.keys()
    assert found == table.keys() == turns.share(table, None).keys()


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
