"""What the states of a group mean."""

from envs.types import GroupState
from envs.viewer.states import meaning, tone


def test_every_state_has_a_meaning_and_a_tone():
    assert all(meaning(state).endswith(".") for state in GroupState)
    assert {tone(state) for state in GroupState} == {"good", "open", "bad"}
    assert meaning("of a later version") == ""
