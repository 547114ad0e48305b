"""No cheat is rewarded, in whatever format the task is."""

import pytest
from cheats import CHEATS
from forcing_cheats import FORCING, GUESSES
from interpreter_cheats import LOOKED_UP, ODD
from task_formats import FORMATS, hurried, worked_on
from turns import share, share_or_all

ALL = {**CHEATS, **FORCING, **ODD}
BY_CHANCE = {**GUESSES, **LOOKED_UP}


@pytest.mark.docker
@share_or_all(2)
@pytest.mark.parametrize("name", FORMATS)
async def test_no_cheat_is_rewarded(name, most, judge_all, tmp_path):
    tried = share(ALL, most, list(FORMATS).index(name))
    verdicts = await judge_all(worked_on(hurried(FORMATS[name](tmp_path)), tried))
    assert {cheat: verdict.explanation for cheat, verdict in verdicts.items() if verdict.reward != 0} == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FORMATS)
async def test_a_guess_is_not_rewarded_twice(name, judge_all, tmp_path):
    """It is right once in eight times at each assert, and the sample has two at least."""
    samples = worked_on(hurried(FORMATS[name](tmp_path)), BY_CHANCE)
    first, second = [await judge_all(samples) for _ in range(2)]
    assert [cheat for cheat in BY_CHANCE if first[cheat].reward == second[cheat].reward == 1] == []
