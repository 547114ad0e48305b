"""A group's members side by side."""

from dataclasses import replace

from envs.records.detail import detail_of
from envs.runs import journal
from envs.viewer.members import _lines, seats_of


def test_each_member_has_its_turns_its_reward_and_its_advantage(run_dir):
    seats = seats_of(run_dir, journal.group(run_dir, 0), 4)
    assert [seat.member.reward for seat in seats] == [1.0, 0.0, 0.0, 1.0]
    assert [seat.advantage for seat in seats] == [1.0, -1.0, -1.0, 1.0]
    first, second = seats[0].turns
    assert first.what.startswith("terminal cat needle_0_0.py")
    assert first.error, "its second call has no such tool"
    assert not second.error


def test_what_was_said_between_replies_is_there(run_dir):
    rollout = seats_of(run_dir, journal.group(run_dir, 0), 4)[0].rollout
    first, second = rollout.result.steps
    steps = [first, replace(second, said=({"role": "user", "content": "go\n on"}, {"role": "user", "content": None}))]
    lines = _lines(detail_of(replace(rollout, result=replace(rollout.result, steps=steps))))
    assert [line.messages for line in lines] == [[], ["user: go on", "user: "]]


def test_members_that_are_not_there_have_a_place_and_no_advantage_is_told(run_dir):
    seats = seats_of(run_dir, journal.group(run_dir, 3), 4)
    assert [seat.member is None for seat in seats] == [False, False, True, True]
    assert [seat.advantage for seat in seats] == [None] * 4


def test_a_member_whose_rollout_was_moved_away_is_left_out(run_dir, tmp_path):
    assert [seat.rollout for seat in seats_of(tmp_path, journal.group(run_dir, 0), 4)] == [None] * 4
