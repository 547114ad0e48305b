"""Rows of several conversations."""

from test_turns import WAYS, forks_and_drops, leaves_out
from worked import play


async def test_a_fork_that_is_dropped_is_trained_and_says_what_it_is(smollm2):
    result, _ = await play(smollm2, WAYS[forks_and_drops][1], forks_and_drops)
    assert [(row.branch, row.turns) for row in result.segments] == [("main", 3), ("fork", 1)]
    assert result.metadata["conversations"] == {"branches": {"main": 3, "fork": 1}, "untrained_tokens": {}}
    assert result.final_response == "done"


async def test_what_is_left_out_is_counted_by_its_reason(smollm2):
    result, exchanges = await play(smollm2, WAYS[leaves_out][1], leaves_out)
    untrained = result.metadata["conversations"]["untrained_tokens"]
    assert untrained == {"not wanted": len(exchanges[1].ids)}
    assert [one.untrained for one in result.record] == ["", "not wanted", "", ""]
