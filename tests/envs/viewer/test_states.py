"""What the states of a group and of packets mean."""

import re
from inspect import getdoc

from envs.running import outbox
from envs.types import GroupState
from envs.viewer.states import meaning, packets, tone


def test_every_state_has_a_meaning_and_a_tone():
    assert all(meaning(state).endswith(".") for state in GroupState)
    assert {tone(state) for state in GroupState} == {"good", "open", "bad"}
    assert meaning("of a later version") == ""


def test_every_state_of_a_packet_that_the_outbox_draws_is_said_in_words():
    drawn = re.findall(r"\w+", (getdoc(outbox) or "").split("\n\n")[1])
    assert [state for state in drawn if packets(state) == state] == ["forgotten"], "nothing of which is kept"
