"""No cheat is rewarded, in whatever format the task is."""

import pytest
from cheats import CHEATS
from task_formats import FORMATS, share


@pytest.mark.long(12)
@pytest.mark.docker
@pytest.mark.parametrize("number, name", list(enumerate(FORMATS)), ids=list(FORMATS))
async def test_each_format_refuses_its_share_of_the_cheats(number, name, judge_scripts, tmp_path):
    verdicts = await judge_scripts(FORMATS[name](tmp_path), share(CHEATS, number, 6))
    assert {cheat: verdict.explanation for cheat, verdict in verdicts.items() if verdict.reward != 0} == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1800)
async def test_no_cheat_is_rewarded(sample, judge_scripts):
    verdicts = await judge_scripts(sample, CHEATS)
    assert {cheat: verdict.explanation for cheat, verdict in verdicts.items() if verdict.reward != 0} == {}


def test_there_are_cheats_enough():
    assert len(CHEATS) >= 25
