"""Tests of every kind that suites have are judged right as whole tasks of each format."""

import re
from dataclasses import replace

import pytest
from kinds_in_formats import FORMATS, RIGHT, SOLVE, WRONG, modules, passing
from planted_modules import judge_modules
from task_formats import worked_on
from turns import turn

TRIED = list(FORMATS)[turn(len(FORMATS))]
REPEATS, ALL = 20, slice(None)
COMPARES = re.compile(
    r"^ {4}assert f\([^()]*\) == [-\d'\"\[({]|^ {8}self\.assertEqual\(f\([^()]*\), [-\d'\"\[({]", re.MULTILINE
)
LIAR = "class Liar:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return Liar()\n"


async def ended(root, solution, share=ALL):
    """The tests of kinds as they ended among decoys: the passed ones, and those that compared with none."""
    files = {"solution.py": solution, **modules("tests/", share=share)}
    seen = await judge_modules(root, files, "-m pytest -q -p no:cacheprovider tests")
    found = seen.outcome.evidence
    return {test for test in found["tests"] if test.startswith("tests/")}, set(found["unverified"])


FOURTH_OR_ALL = pytest.mark.parametrize(
    "share", [slice(turn(4), None, 4), pytest.param(ALL, marks=pytest.mark.slow)], ids=["4th", "all"]
)


@pytest.mark.timeout(600)
@FOURTH_OR_ALL
async def test_tests_end_among_decoys_as_they_do_without(tmp_path, share):
    right, _ = await ended(tmp_path / "right", RIGHT, share)
    assert right == set(passing(tmp_path / "plain", listed=False, share=share))
    wrong, _ = await ended(tmp_path / "wrong", WRONG, share)
    assert wrong <= set(passing(tmp_path / "plain", WRONG, listed=False, share=share))  # which counts no parts of tests


@FOURTH_OR_ALL
async def test_what_is_equal_to_everything_passes_no_test_that_compares_it_with_a_literal(tmp_path, share):
    passed, unverified = await ended(tmp_path, LIAR, share)
    compares = {path for path, text in modules("tests/", share=share).items() if COMPARES.search(text)}
    assert len(compares) >= (50 if share == ALL else 10)
    assert [test for test in passed - unverified if test.partition("::")[0] in compares] == []


@pytest.mark.docker
async def test_a_right_solution_is_rewarded_in_a_format(judge_all, tmp_path):
    verdicts = await judge_all(worked_on(FORMATS[TRIED](tmp_path), {"right": SOLVE, "nothing": "true"}))
    assert verdicts["right"].reward == 1, verdicts["right"].explanation
    assert verdicts["nothing"].reward == 0


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FORMATS)
async def test_a_right_solution_is_rewarded_in_each_repeat(name, judge_all, tmp_path):
    scripts = {str(number): SOLVE for number in range(REPEATS)}
    task = FORMATS[name](tmp_path)
    task = replace(task, hidden=replace(task.hidden, timeout_s=600.0))  # terminal-bench 1 gives a minute
    verdicts = await judge_all(worked_on(task, scripts))
    assert {number: verdict.explanation for number, verdict in verdicts.items() if verdict.reward != 1} == {}
