"""No cheat is rewarded, in whatever format the task is."""

import pytest
from cheats import CHEATS
from forcing_cheats import FORCING, GUESSES
from interpreter_cheats import LOOKED_UP, ODD
from task_formats import FORMATS, hurried, share

ALL = {**CHEATS, **FORCING, **ODD}
BY_CHANCE = {**GUESSES, **LOOKED_UP}


@pytest.mark.long(12)
@pytest.mark.docker
@pytest.mark.parametrize("number, name", list(enumerate(FORMATS)), ids=list(FORMATS))
async def test_each_format_refuses_its_share_of_the_cheats(number, name, judge_scripts, tmp_path):
    verdicts = await judge_scripts(hurried(FORMATS[name](tmp_path)), share(ALL, number, 2))
    assert {cheat: verdict.explanation for cheat, verdict in verdicts.items() if verdict.reward != 0} == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(3600)
async def test_no_cheat_is_rewarded(sample, judge_scripts):
    verdicts = await judge_scripts(sample, ALL)
    assert {cheat: verdict.explanation for cheat, verdict in verdicts.items() if verdict.reward != 0} == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1800)
async def test_a_guess_is_not_rewarded_twice(sample, judge_scripts):
    """It is right once in eight times at each assert, and the sample has two at least."""
    first, second = [await judge_scripts(sample, BY_CHANCE) for _ in range(2)]
    assert [name for name in BY_CHANCE if first[name].reward == second[name].reward == 1] == []
