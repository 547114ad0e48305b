"""What functions are given: replies told apart by their ids."""

from types import SimpleNamespace

import pytest

from envs.functions.arguments import turn_of


@pytest.mark.parametrize(
    ("reply", "number"),
    [(3, 3), ("chatcmpl-12", 12), ("msg_gw_7", 7), (SimpleNamespace(id="resp_gw_0"), 0)],
)
def test_a_reply_is_found_by_what_the_client_has_of_it(reply, number):
    assert turn_of(reply) == number


@pytest.mark.parametrize("reply", ["run-abc", SimpleNamespace(id=None), object(), "chatcmpl"])
def test_what_is_no_reply_of_ours_is_refused(reply):
    with pytest.raises(ValueError, match="no reply of this model"):
        turn_of(reply)
