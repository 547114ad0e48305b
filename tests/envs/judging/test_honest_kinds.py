"""Tests of every kind that suites have are judged right as whole tasks of each format."""

from dataclasses import replace

import pytest
from honest_kinds import KINDS
from kinds_in_formats import FORMATS, SOLVE, modules
from test_odd_solutions import ODD
from turns import turn

TRIED = list(FORMATS)[turn(len(FORMATS))]
REPEATS = 20


def test_there_are_kinds_and_solutions_enough():
    assert len(modules()) + len(ODD) >= 120
    assert len(modules(listed=True)) > 100 and len(KINDS) >= 140


@pytest.mark.docker
async def test_a_right_solution_is_rewarded_in_a_format(judge_scripts, tmp_path):
    verdicts = await judge_scripts(FORMATS[TRIED](tmp_path), {"right": SOLVE, "nothing": "true"})
    assert verdicts["right"].reward == 1, verdicts["right"].explanation
    assert verdicts["nothing"].reward == 0


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FORMATS)
async def test_a_right_solution_is_rewarded_in_each_repeat(name, judge_scripts, tmp_path):
    scripts = {str(number): SOLVE for number in range(REPEATS)}
    task = FORMATS[name](tmp_path)
    task = replace(task, hidden=replace(task.hidden, timeout_s=600.0))  # terminal-bench 1 gives a minute
    verdicts = await judge_scripts(task, scripts)
    assert {number: verdict.explanation for number, verdict in verdicts.items() if verdict.reward != 1} == {}
