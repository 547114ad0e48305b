"""The names of a module: contexts that may catch a failing assert. Parameters that reach nothing else: `test_sites`."""

import ast

import pytest

from envs.judging.decoys.names import Bindings


@pytest.mark.parametrize(
    ("context", "caught"),
    [
        ("pytest.raises(ValueError)", True),
        ("contextlib.suppress(KeyError)", True),
        ("own()", True),
        ("open('a')", False),
        ("self.subTest(i=1)", False),
    ],
)
def test_contexts_that_may_catch_a_failing_assert_are_known(context, caught):
    bindings = Bindings(ast.parse("def own():\n    pass\n"))
    assert bindings.may_catch([ast.parse(context, mode="eval").body]) is caught
