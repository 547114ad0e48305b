"""What literals are worth, and of which parts they are."""

import ast

import pytest
from planted_modules import parsed as syntax

from envs.judging.decoys import literals

NAMES = literals.Names({"Decimal": "decimal.Decimal", "approx": "pytest.approx"}, {"tuple"})


def test_a_value_that_only_the_module_knows_is_told_from_one_that_there_is_not():
    assert literals.evaluated(syntax("[name]"), NAMES) == ()
    assert literals.evaluated(syntax("Decimal('x')"), NAMES) is None


def test_leaves_are_the_literals_at_their_places():
    node = syntax("{'a': [1, x]}")
    leaves = list(literals.leaves_of(node, (), NAMES))
    assert [leaf.value for leaf in leaves] == [1, "a"]
    other = literals.replaced(node, leaves[0].path, ast.Constant(7))
    assert ast.unparse(other) == "{'a': [7, x]}" and ast.unparse(node) == "{'a': [1, x]}"
    assert None in list(literals.leaves_of(syntax("[f(1)]"), (), NAMES))


@pytest.mark.parametrize(
    "text", ["int(text, 0)", "date(2020, month, 31)", "Decimal(places(3))", "range(0, 9, self.step)"]
)
def test_what_is_called_with_more_than_literals_is_left_alone(text):
    """Another literal there may be refused: there are not 31 days in every month."""
    assert None in list(literals.leaves_of(syntax(text), (), literals.Names({"date": "datetime.date"}, set())))


def test_what_is_compared_nearly_says_how_nearly():
    assert list(literals.tolerances(syntax("approx(3, abs=0.1)"), NAMES)) == [1e-12, 0.1]
    assert list(literals.tolerances(syntax("[3]"), NAMES)) == []
