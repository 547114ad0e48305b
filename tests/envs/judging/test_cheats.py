"""No cheat is rewarded, in whatever format the task is."""

import pytest
from cheats import CHEATS
from forcing_cheats import FORCING, GUESSES
from interpreter_cheats import LOOKED_UP, ODD
from task_formats import FORMATS, SHARE_OR_ALL, hurried, share

ALL = {**CHEATS, **FORCING, **ODD}
BY_CHANCE = {**GUESSES, **LOOKED_UP}


@pytest.mark.docker
@SHARE_OR_ALL
@pytest.mark.parametrize("name", FORMATS)
async def test_no_cheat_is_rewarded(name, most, judge_scripts, tmp_path):
    verdicts = await judge_scripts(hurried(FORMATS[name](tmp_path)), share(ALL, name, most))
    assert {cheat: verdict.explanation for cheat, verdict in verdicts.items() if verdict.reward != 0} == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FORMATS)
async def test_a_guess_is_not_rewarded_twice(name, judge_scripts, tmp_path):
    """It is right once in eight times at each assert, and the sample has two at least."""
    sample = hurried(FORMATS[name](tmp_path))
    first, second = [await judge_scripts(sample, BY_CHANCE) for _ in range(2)]
    assert [cheat for cheat in BY_CHANCE if first[cheat].reward == second[cheat].reward == 1] == []
