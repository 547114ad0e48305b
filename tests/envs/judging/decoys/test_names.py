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


def test_a_parameter_is_accepted_where_all_that_reads_it_compares():
    tree = ast.parse(
        "import pytest\n@pytest.mark.parametrize('one, two', [(1, 2)])\ndef test_a(one, two):\n"
        "    assert f() == one\n    assert f() == two\n    print(two)\n"
    )
    bindings = names.Bindings(tree)
    reads = {node.id: id(node) for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in ("one", "two")}
    accepted, values = bindings.accept({reads["one"], reads["two"]} & bindings.parameters.keys())
    assert accepted == {reads["one"]}
    assert [value.value for value in values] == [1]
