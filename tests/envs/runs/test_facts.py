"""What the index keeps of a rollout."""

from dataclasses import replace

import pytest
from samples import rollout

from envs.records.atif import to_atif
from envs.runs.facts import MOST_TEXT, facts_of
from envs.types import Reward


def test_figures_and_texts_are_the_rollouts():
    verdict = replace(rollout().verdict, metrics={"judged": 0.5})
    facts = facts_of(to_atif(replace(rollout(), reward=Reward(0.25), verdict=verdict)))
    assert (facts.id, facts.task, facts.grp, facts.member, facts.step) == ("r-1", "fix-the-sum", 7, 1, 3)
    assert (facts.reward, facts.judged, facts.solved) == (0.25, 1.0, True)
    assert (facts.turns, facts.engine_s, facts.tools_s) == (2, 0.75, 0.125)
    assert "Fix sum.py." in facts.instruction
    assert "cat sum.py" in facts.conversation
    assert "It is fixed." in facts.conversation
    assert "def sum(a, b)" in facts.output
    assert ("tool", "terminal") in facts.labels
    assert ("trouble", "malformed call") in facts.labels


def test_texts_are_bounded():
    assert len(facts_of(to_atif(rollout(output="x " * MOST_TEXT))).output) == MOST_TEXT


def test_the_patch_and_the_verifiers_output_can_be_searched():
    one = rollout()
    saved = to_atif(replace(one, verdict=replace(one.verdict, patch="+ patched_line", output="printed_line")))
    assert "patched_line" in facts_of(saved).output
    assert "printed_line" in facts_of(saved).output


@pytest.mark.parametrize("document", [{}, {"extra": {"atropos_agent": {}}}, {"extra": []}])
def test_what_is_no_rollout_is_refused(document):
    with pytest.raises((KeyError, TypeError)):
        facts_of(document)


@pytest.mark.parametrize("place", ["step", "group", "member"])
@pytest.mark.parametrize("value", [10**30, -(10**30), [1], "x"])
def test_a_figure_for_which_the_index_has_no_place_is_refused(place, value):
    document = to_atif(rollout())
    document["extra"]["atropos_agent"]["seat"] = {"group": 1, "member": 0, "step": 0, place: value}
    with pytest.raises((ValueError, TypeError)):
        facts_of(document)
