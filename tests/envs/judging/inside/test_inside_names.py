"""Which names reach nothing but an assert."""

import ast

import names
import pytest


@pytest.mark.parametrize(
    "context, caught",
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


def test_a_name_is_accepted_where_all_that_reads_it_compares():
    tree = ast.parse(
        "def test_a():\n    one = 1\n    two = 2\n    assert f() == one\n    assert f() == two\n    print(two)\n"
    )
    bindings = names.Bindings(tree)
    reads = bindings.inside(tree.body[0]).reads
    assert bindings.is_literal(reads["one"][0]) and bindings.is_literal(reads["two"][0])
    accepted, values = bindings.accept({id(reads["one"][0]), id(reads["two"][0])})
    assert accepted == {id(reads["one"][0])}
    assert [value.value for value in values] == [1]


def test_functions_that_are_handed_on_or_caught_are_quiet():
    tree = ast.parse("def a(): b()\ndef b(): pass\ndef c(): pass\ndef test_x():\n    again(a)\n    c()\n")
    assert names.Bindings(tree).quiet == {"a", "b"}
