"""Tests of every kind that suites have are judged right, each time: a third of the kinds by turns, with `--all` all."""

import pytest
from honest_kinds import KINDS
from turns import todays

SOLUTION = {"solution.py": "def f(x):\n    return x + x\n"}


def modules(numbers):
    texts = list(KINDS.values())
    return {f"test_kind_{i}.py": texts[i].replace("NUMBER", str(i)) for i in numbers}


def lost(judged, numbers):
    """The kinds of which a test was judged wrong, with what was said."""
    seen = judged({**SOLUTION, **modules(numbers)})
    names = list(KINDS)
    wrong = [test for test in (seen.problem or "").partition(": ")[2].split(", ") if test]
    return {names[int(test.split("_")[2].split(".")[0])]: test for test in wrong} or seen.problem


def test_there_are_kinds_enough():
    assert len(KINDS) >= 100


def test_each_kind_is_judged_right(judged):
    assert lost(judged, range(todays(3), len(KINDS), 3)) is None


@pytest.mark.slow
def test_each_kind_is_judged_right_each_time(judged):
    assert [lost(judged, range(len(KINDS))) for _ in range(20)] == [None] * 20


@pytest.mark.slow
def test_a_wrong_solution_passes_no_kind_that_looks_at_it(judged):
    seen = judged({"solution.py": "def f(x):\n    return x\n", **modules(range(60))})
    assert sum(status != "passed" for status in seen.tests.values()) > 45
