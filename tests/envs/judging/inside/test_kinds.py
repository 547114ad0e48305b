"""Tests of every kind that suites have are judged right: a third of the kinds by turns, with `--all` all."""

import pytest
from honest_kinds import KINDS
from turns import turn

DOUBLES, SAME = "def f(x):\n    return x + x\n", "def f(x):\n    return x\n"


def modules(numbers):
    texts = list(KINDS.values())
    return {f"test_kind_{i}.py": texts[i].replace("NUMBER", str(i)) for i in numbers}


async def lost(judged, numbers):
    """The kinds of which a test was judged wrong, with what was said."""
    seen = await judged({"solution.py": DOUBLES, **modules(numbers)})
    names = list(KINDS)
    wrong = [test for test in (seen.problem or "").partition(": ")[2].split(", ") if "test_kind_" in test]
    return {names[int(test.split("test_kind_")[1].split(".")[0])]: test for test in wrong} or seen.problem


async def test_each_kind_is_judged_right(judged):
    assert await lost(judged, range(turn(3), len(KINDS), 3)) is None


@pytest.mark.slow
async def test_all_kinds_are_judged_right(judged):
    assert await lost(judged, range(len(KINDS))) is None


async def test_a_wrong_solution_passes_few_kinds_that_look_at_it(judged):
    seen = await judged({"solution.py": SAME, **modules(range(60))})
    assert sum(status != "passed" for status in seen.tests.values()) > 45
