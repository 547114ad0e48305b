"""What compares with each value of a set tells what was equal, once for each outcome in a test."""

import pytest
from planted_modules import REPORTER, Line


def sample():
    line = Line()
    one = REPORTER.Probe(line)
    return one, line.messages


def told(messages):
    return [(message["site"], message["set"], message["equal"]) for message in messages]


class Silent:
    def __repr__(self):
        raise ValueError


def test_each_outcome_is_told_once_in_a_test():
    one, messages = sample()
    want = one.want(7, (1, 2, 3))
    for value in (2, 2, 5):
        one.equal(4, value, want, False)
    assert told(messages) == [(4, 7, "010"), (4, 7, "000")]
    one.begin()
    one.equal(4, 2, want, False)
    assert told(messages)[2:] == [(4, 7, "010")]


def test_what_every_comparison_raises_is_raised():
    class Strict:
        def __eq__(self, other):
            raise TypeError("no")

        __hash__ = None

    one, _ = sample()
    with pytest.raises(TypeError, match="no"):
        one.equal(0, Strict(), one.want(0, (1, 2)), False)


def test_a_value_without_decoys_is_compared_as_it_is():
    one, messages = sample()
    assert one.equal(3, 1, 1, False) and not one.equal(3, 1, 2, True)
    assert told(messages) == [(3, -1, "")]


@pytest.mark.parametrize(
    ("value", "want", "message", "said"),
    [
        (3, (1, 2), None, "assert 3 == one of 1, 2"),
        (3, (1, 2), "why", "why\nassert 3 == one of 1, 2"),
        (3, 4, None, "assert 3 == 4"),
        ("a" * 5000, (1, 2), None, f"assert '{'a' * 492} ... {'a' * 484}' == one of 1, 2"),
        (Silent(), (1, 2), None, "assert something of which repr() raises ValueError"),
    ],
)
def test_a_comparison_that_came_to_nothing_says_of_what(value, want, message, said):
    one, _ = sample()
    want = one.want(0, want) if isinstance(want, tuple) else want
    with pytest.raises(AssertionError) as caught:
        one.check(4, "equal", value, want, False, None if message is None else lambda: message)
    assert caught.value.args == (said,)


def test_a_message_is_made_only_where_a_comparison_failed():
    one, _ = sample()
    one.check(4, "equal", 1, one.want(0, (1, 2)), False, lambda: 1 / 0)
