"""What compares with each value of a set tells what was equal, once for each outcome in a test."""

import os

import probe
import pytest


def sample():
    told = []
    return probe.Probe(lambda *what: told.append(what)), told


class Silent:
    def __repr__(self):
        raise ValueError


def test_each_outcome_is_told_once_in_a_test():
    one, told = sample()
    want = one.want(7, "", (1, 2, 3))
    for value in (2, 2, 5):
        one.equal(4, value, want, False)
    assert told == [(4, 7, "010"), (4, 7, "000")]
    one.begin()
    one.equal(4, 2, want, False)
    assert told[2:] == [(4, 7, "010")]


def test_what_every_comparison_raises_is_raised():
    class Strict:
        def __eq__(self, other):
            raise TypeError("no")

        __hash__ = None

    one, _ = sample()
    with pytest.raises(TypeError, match="no"):
        one.equal(0, Strict(), one.want(0, "", (1, 2)), False)


def test_a_value_without_decoys_is_compared_as_it_is():
    one, told = sample()
    assert one.equal(3, 1, 1, False) and not one.equal(3, 1, 2, True)
    assert told == [(3, -1, "")]


@pytest.mark.parametrize(
    ("value", "want", "message", "said"),
    [
        (3, (1, 2), (), "assert 3 == one of 1, 2"),
        (3, (1, 2), ("why",), "why\nassert 3 == one of 1, 2"),
        (3, 4, (), "assert 3 == 4"),
        ("a" * 5000, (1, 2), (), f"assert '{'a' * 492} ... {'a' * 484}' == one of 1, 2"),
        (Silent(), (1, 2), (), "assert something of which repr() raises ValueError"),
    ],
)
def test_a_comparison_that_came_to_nothing_says_of_what(value, want, message, said):
    one, _ = sample()
    want = one.want(0, "", want) if isinstance(want, tuple) else want
    assert not one.equal(4, value, want, False)
    assert one.failed(*message).args == (said,)


def test_what_is_told_goes_through_a_pipe_line_by_line():
    reader, pipe = os.pipe()
    probe.writer(pipe)(3, 4, "01")
    os.close(pipe)
    assert os.read(reader, 99) == b'{"kind": "site", "site": 3, "set": 4, "equal": "01"}\n'
    probe.writer(pipe)(3, 4, "01")  # a process of the tests' may have closed it
    os.close(reader)
