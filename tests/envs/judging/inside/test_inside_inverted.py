"""Inverted assertions: they fail on honest code, and pass where a test was made to pass by force."""

import ast

import inverted
import pytest

BODIES = [
    "assert f(3) == 6",
    "assert 6 == f(3)",
    "twice = 6\n    assert f(3) == twice",
    "assert f(3) == 3 + 3",
    "assert f(3) > 5",
    "assert f('a')",
    "assert f([1]) == [1, 1]",
    "assert not f(0)",
    "with pytest.raises(TypeError):\n        f(None)",
    "if f(3) == 6:\n        return\n    assert False",
    "case.assertEqual(f(3), 6)",
    "case.assertIn(3, [f(1), 3])",
    "for x, twice in [(1, 2), (2, 4)]:\n        assert f(x) == twice",
]


def run(body, function):
    """Whether a test ends without an error, and whether one of its altered assertions held."""
    source = f"import pytest, unittest\ncase = unittest.TestCase()\n\ndef test_f():\n    {body}\n"
    tree = ast.parse(source)
    inverted.invert(tree, {"test_f"}, "test_canary")
    probe = inverted.Probe()
    names = {inverted.PROBE: probe, "f": function}
    exec(compile(tree, "test_sample.py", "exec"), names)
    with pytest.raises(AssertionError):
        names["test_canary"]()
    try:
        names["test_f"]()
    except (AssertionError, TypeError, pytest.fail.Exception):
        return False, probe.held
    return True, probe.held


def double(x):
    return x * 2 if x is not None else None + 1


class EqualToAll:
    __hash__ = None

    def __eq__(self, other):
        return True


@pytest.mark.parametrize("body", BODIES)
def test_honest_code_fails_what_was_inverted(body):
    assert run(body, double) == (False, False)


@pytest.mark.parametrize("body", BODIES[:4])
def test_an_object_that_is_equal_to_everything_passes_and_is_found_out(body):
    assert run(body, lambda x: EqualToAll()) == (True, True)


@pytest.mark.parametrize(
    "body", ["pass", "assert True", "try:\n        assert f(3) == 6\n    except KeyError:\n        pass"]
)
def test_a_test_in_which_nothing_could_be_altered_fails_at_its_end(body):
    assert run(body, double) == (False, False)


@pytest.mark.parametrize("value", [True, 0, 1.5, -3, "a", b"a", [1], (1,), {"a": 1}, {1}, frozenset(), None, 1j])
def test_a_value_is_altered_into_another_of_its_type(value):
    probe = inverted.Probe()
    other = probe.alter(value)
    assert probe.hit
    assert other != value
    assert value is None or type(other) is type(value)


def test_a_value_of_an_unknown_type_stays_and_proves_nothing():
    probe, value = inverted.Probe(), object()
    assert probe.alter(value) is value
    assert not probe.hit


def test_tests_are_found_in_modules_and_classes():
    tree = ast.parse(
        "def test_a(): pass\ndef other(): pass\nclass T:\n    def test_b(self): pass\n    def c(self): pass\n"
    )
    assert [name for name, _ in inverted.functions(tree)] == ["test_a", "T::test_b"]
