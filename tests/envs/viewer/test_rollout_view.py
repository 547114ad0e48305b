"""Why a rollout has its score."""

from dataclasses import replace

from samples import rollout

from envs.records.atif import to_atif
from envs.records.read import from_atif
from envs.runs import journal
from envs.types import Reward
from envs.viewer.rollout_view import build_view


def test_a_shaped_reward_and_turns_of_their_own_are_told():
    one = replace(rollout(), reward=Reward(0.75, (0.5, -0.25), "a malformed call costs 0.25"))
    found = build_view(from_atif(to_atif(one)), None, 0)
    assert "In training it is worth 0.75: a malformed call costs 0.25." in found.reasons
    assert "Turns have advantages of their own beside: +0.5, -0.25." in found.reasons


def test_a_rollout_in_whose_place_its_group_has_another_is_named(run_dir):
    group = journal.group(run_dir, 0)
    saved = from_atif(to_atif(rollout()))
    assert build_view(saved, group, group.members[1].place).counts
    found = build_view(saved, group, 10**9)
    assert not found.counts
    assert any("does not count this rollout" in reason for reason in found.reasons)


def test_each_row_is_a_lane_with_its_turns():
    one = rollout()
    (data,) = one.result.segments
    steps = [replace(step, segment=step.index) for step in one.result.steps]
    both = (data, replace(data, segment=1, policy_version=4, branch="side"))
    found = build_view(
        from_atif(to_atif(replace(one, result=replace(one.result, segments=both, steps=steps)))), None, 0
    )
    lanes = [(lane.branch, lane.turns, lane.weights) for lane in found.lanes]
    assert lanes == [("main", [1], None), ("side", [2], 4)]
