"""The names of a module: what catches a failing assert, and which parameters reach nothing but an assert."""

import ast

import pytest

from envs.judging.decoys import names


@pytest.mark.parametrize(
    ("context", "caught"),
    [
        ("with pytest.raises(AssertionError): pass", True),
        ("with pytest.raises(ValueError): pass", False),
        ("with contextlib.suppress(KeyError): pass", True),
        ("with open('a'): pass", False),
        ("try: pass\nexcept Exception: pass", True),
        ("try: pass\nexcept: pass", True),
        ("try: pass\nexcept (KeyError, ValueError): pass", False),
        ("try: pass\nfinally: pass", False),
    ],
)
def test_what_catches_a_failing_assert_is_known(context, caught):
    assert names.catches_asserts(ast.parse(context).body[0]) is caught
