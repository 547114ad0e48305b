"""Single rollouts by their place, and where words stand in them."""

from dataclasses import replace

import pytest
from samples import rollout

from envs.records.atif import to_atif
from envs.runs.reading import NoRollout, read_document, read_rollout, snippet


def test_a_rollout_is_read_by_its_place(run_dir):
    assert read_rollout(run_dir, 0).id == "r-0-0"


@pytest.mark.parametrize("place", [1, 10**12])
def test_where_no_rollout_begins_there_is_none(run_dir, place):
    with pytest.raises(NoRollout):
        read_document(run_dir, place)


def test_a_file_that_cannot_be_read_has_none_and_says_why(tmp_path):
    (tmp_path / "rollouts.jsonl").mkdir()
    with pytest.raises(NoRollout, match="the file with byte 0 can't be read: Is a directory"):
        read_document(tmp_path, 0)


def test_a_snippet_names_the_turn_and_what_stands_around():
    found = snippet(to_atif(rollout(output="before NEEDLE after")), ["needle"])
    assert (found.turn, found.where, found.match) == (1, "output", "NEEDLE")
    assert (found.before, found.after) == ("before ", " after")
    assert snippet(to_atif(rollout()), ["nowhere"]) is None
    assert snippet(to_atif(rollout()), ["fix"]).where == "instruction"


def test_what_is_said_between_replies_is_found():
    made = rollout()
    first, last = made.result.steps
    last = replace(last, said=({"role": "user", "content": "Are you SURE?"},))
    made = replace(made, result=replace(made.result, steps=(first, last)))
    assert snippet(to_atif(made), ["sure"]).match == "SURE"


def test_a_snippet_is_the_match_also_behind_letters_with_two_lower_ones():
    found = snippet(to_atif(rollout(output="İ" * 9 + "before NEEDLE after")), ["needle"])
    assert (found.match, found.after) == ("NEEDLE", " after")
