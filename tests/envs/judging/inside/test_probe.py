"""What compares with each value of a set tells what was equal, once for each outcome in a test."""

import builtins
import unittest
from types import SimpleNamespace

import pytest
from planted_modules import REPORTER, Line


def sample():
    line = Line()
    one = REPORTER.Probe(line)
    return one, line.messages


def told(messages):
    return [(message["site"], message["set"], message["equal"]) for message in messages]


def test_each_outcome_is_told_once_in_a_test():
    one, messages = sample()
    want = one.want(7, (1, 2, 3))
    for value in (2, 2, 5):
        one.equal(4, value, want)
    assert told(messages) == [(4, 7, "010"), (4, 7, "000")]
    one.begin()
    one.equal(4, 2, want)
    assert told(messages)[2:] == [(4, 7, "010")]


def test_a_test_may_replace_builtins(monkeypatch):
    lines = []
    one = REPORTER.Probe(SimpleNamespace(write=lines.append))
    with monkeypatch.context() as replaced:
        for name in ("any", "len", "list", "range"):
            replaced.setattr(builtins, name, lambda *_: 7)
        one.method(4, unittest.TestCase().assertEqual, True)(2, one.want(7, (1, 2, 3)))
    assert lines == ['{"kind": "site", "site": 4, "set": 7, "equal": "010"}']


def test_what_every_comparison_raises_is_raised():
    class Strict:
        def __eq__(self, other):
            raise TypeError("no")

        __hash__ = None

    one, _ = sample()
    with pytest.raises(TypeError, match="no"):
        one.equal(0, Strict(), one.want(0, (1, 2)))


def test_a_value_without_decoys_is_compared_as_it_is():
    one, messages = sample()
    assert one.equal(3, 1, 1) and not one.equal(3, 1, 2)
    assert told(messages) == [(3, -1, "")]


@pytest.mark.parametrize(("right", "said"), [((1, 2), "3 == one of 1, 2"), (4, "3 == 4")])
def test_a_comparison_that_came_to_nothing_says_of_what(right, said):
    one, _ = sample()
    assert repr(one.equal(4, 3, one.want(0, right) if isinstance(right, tuple) else right)) == said
