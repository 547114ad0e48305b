"""Tests among decoys: for right code each does what it did, for wrong code it fails."""

import unittest

import pytest
from planted_modules import REPORTER, Run, text_of

from envs.judging.decoys.key import FIRST
from envs.judging.reports.evidence import FORCED

MODULE = """
import contextlib, pytest, unittest
case = unittest.TestCase()

def test_f():
    %s
"""


@pytest.mark.parametrize(
    "body",
    [
        "if f(3):\n        return\n    assert f(3) == 6",
        "for x in []:\n        assert f(3) == 6",
        "for x in [1]:\n        break\n        assert f(3) == 6",
        "if f(0):\n        assert f(3) == 6",
        "with pytest.raises(TypeError):\n        f(None)\n        assert f(3) == 6",
        "try:\n        f(None)\n        assert f(3) == 6\n    except TypeError:\n        pass",
        "end = pytest.raises(TypeError)\n    with end:\n        assert f(None) == 6",
    ],
)
def test_sites_that_a_run_may_miss_need_not_tell(body):
    assert Run(MODULE % body).verdict() == ("passed", None)


def test_what_the_reference_told_of_must_be_told_again():
    run = Run("def odd(test):\n    return test\n\n@odd\ndef test_f():\n    assert f(3) == 6\n")
    record = run.record()
    assert run.verdict(record=record) == ("passed", None)
    run.messages[:] = [message for message in run.messages if message.get("set") in (None, -1)]
    assert run.verdict("passed") == ("passed", None)
    assert run.verdict("passed", record) == ("failed", FORCED)


@pytest.mark.parametrize(
    ("body", "other"),
    [
        ("for part in f('ab'):\n        assert part == 'a' or part in 'b'", lambda x: ""),
        ("for part in sorted(f([1])):\n        assert part == 1", lambda x: []),
        ("got = f(3)\n    if got == 6:\n        same(got, 6)\n    else:\n        same(got, 7)", lambda x: 7),
    ],
)
def test_other_right_code_need_not_tell_what_the_reference_did(body, other):
    module = "def same(got, want):\n    assert got == want\n\n" + MODULE % body
    record = Run(module).record()
    assert Run(module).verdict(record=record) == ("passed", None)
    assert Run(module, other).verdict(record=record) == ("passed", None)


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "site"},
        {"kind": "site", "site": FIRST + 99, "set": FIRST, "equal": ""},
        {"kind": "site", "site": -1, "set": 0, "equal": ""},
        {"kind": "site", "site": FIRST, "set": FIRST + 99, "equal": "1"},
        {"kind": "site", "site": FIRST, "set": FIRST, "equal": ["1"]},
        {"kind": "site", "site": True, "set": FIRST, "equal": ""},
        {"kind": "site", "site": "0", "set": 0, "equal": "1"},
        {"kind": "start", "id": ["x"]},
    ],
)
def test_nonsense_is_passed_over(message):
    run = Run(MODULE % "assert f(3) == 6")
    run.messages.append(message)
    assert run.verdict() == ("passed", None)


PARAMETRIZED = """
import pytest

@pytest.mark.parametrize("x, twice", [(4, 8), (0.5, 1.0), pytest.param("a", "aa", id="text")])
def test_f(x, twice):
    assert f(x) == twice

@pytest.mark.parametrize("x, twice", [(4, 8)])
def test_used(x, twice):
    assert f(x) == twice
    assert twice % 2 == 0

@pytest.mark.parametrize("x, twice", [(4, 8)], indirect=["x"])
def test_indirect(x, twice):
    assert f(x) == twice
"""


def test_parameters_that_are_compared_alone_stand_among_decoys():
    run = Run(PARAMETRIZED, test="test_f", x=4, twice=8)
    rows = run.names["test_f"].pytestmark[0].args[1]
    assert [type(value) for row in rows[:2] for value in row] == [int, REPORTER.Want, float, REPORTER.Want]
    assert type(rows[2].values[1]) is REPORTER.Want
    assert (rows[0][1].shown, rows[1][1].shown) == ("8", "1.0")
    assert 8 in rows[0][1].values
    assert [run.names[name].pytestmark[0].args[1] for name in ("test_used", "test_indirect")] == [[(4, 8)]] * 2


def test_a_failed_method_of_unittests_fails_as_it_did():
    run = Run(MODULE % "case.assertEqual(f(3), 6)", lambda x: "x")
    assert isinstance(run.failed, unittest.TestCase.failureException)


def test_each_comparison_of_an_assert_has_its_sets():
    run = Run("def test_f():\n    assert f(3) == 6 and f(1) == 2 and f(2) > 3\n")
    assert run.failed is None
    ((site, numbers),) = run.key.sets.items()
    told = {message["set"] - FIRST for message in run.messages if message.get("site") == FIRST + site}
    assert len(numbers) == 2 and set(numbers) <= told
    assert run.verdict() == ("passed", None)


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("async def test_f():\n    assert f(3) == 6\n", {"test_f"}),
        ("class TestA:\n    async def test_f(self):\n        assert f(3) == 6\n", {"TestA::test_f"}),
        ("class A(IsolatedAsyncioTestCase):\n    async def test_f(self):\n        assert f(3) == 6\n", {"A::test_f"}),
        ("class A(TestCase):\n    async def test_f(self):\n        assert f(3) == 6\n", set()),
        (
            "class TestA:\n    def test_f(self):\n        assert f(3) == 6\n"
            "class TestB:\n    def test_f(self):\n        assert f(3) == 6\n",
            {"TestA::test_f", "TestB::test_f"},
        ),
        ("class A:\n    def test_f(self):\n        assert f(3) == 6\n    def test_f(self):\n        pass\n", set()),
        ("async def check():\n    assert f(3) == 6\ndef test_f():\n    check()\n    assert f(3)\n", {"test_f"}),
    ],
)
def test_each_test_that_is_run_as_it_is_written_is_asked_for_its_sites(source, asked):
    _, key = text_of(source)
    assert {test for _, test in key.must} == asked
    assert all(key.must.values())


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.parametrize('x, twice', [(4, 8)])\n@used\ndef test_f(x, twice):\n    assert f(x) == twice\n",
        "class TestA:\n    def encode(self, x, twice):\n        assert f(x) == twice\n\n"
        "    def test_f(self):\n        self.encode(4, 8)\n        assert codec.encode('ab', 16)\n",
        "def check(x):\n    assert x == 6\ndef test_f():\n    check(f(3))\n",
        "def test_f():\n    def inner():\n        assert f(3) == 6\n    again(inner)\n",
        "class TestA:\n    def check(self):\n        assert f(3) == 6\n    def test_f(self):\n        self.check()\n",
        "def test_f():\n    with pytest.raises(AssertionError):\n        assert f(3) == 6\n",
        "def test_f():\n    try:\n        assert f(3) == 6\n    except ValueError:\n        pass\n",
    ],
)
def test_what_others_are_given_or_may_catch_stands_as_it_is(source):
    """Helpers may be called where a failing assert is caught."""
    text, _ = text_of("import pytest\n" + source)
    assert b".want" not in text
