"""Comparisons of tests: what is asked where they stood. What comes of whole tests is in `test_inside_sites`."""

import ast
import random

import pytest
from comparing import Comparisons, reached, unsaid
from decoys import Decoys, looked_for, vocabulary
from key import Key
from names import Bindings


@pytest.fixture
def planting():
    """Returns what becomes of a comparison, as text, and the key."""

    def plant(text, accepted=frozenset(), before=""):
        tree, key = ast.parse(f"{before}def test_f():\n    {text}\n"), Key()
        comparisons = Comparisons(
            key, Decoys(random.Random(1), vocabulary([tree]), looked_for([tree])), Bindings(tree), accepted
        )
        (statement,) = tree.body[-1].body
        if isinstance(statement, ast.Assert):
            made, _ = comparisons.condition(statement.test, 7)
        else:
            made = comparisons.method(statement.value, statement.value.func.attr, 7)
        return "" if made is None else ast.unparse(made), key, comparisons

    return plant


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("assert f(3) == 6", "equal"),
        ("assert f(3) is True", "same"),
        ("assert 'hellohello' in f(3)", "inside"),
        ("self.assertEqual(f(3), 6)", "method"),
        ("self.assertAlmostEqual(f(3), 6.5, places=3)", "method"),
        ("self.assertIs(f(3), None)", "method"),
    ],
)
def test_a_comparison_with_a_literal_asks_the_probe(planting, text, how):
    made, key, _ = planting(text)
    assert made.startswith(f"@probe.{how}(7, ")
    assert "@probe.want(0, " in made
    assert key.asked == {7: [0]}


@pytest.mark.parametrize(
    "text",
    ["assert f(3) > 5", "assert 3 == 3", "self.assertIs(f(3), 6)", "self.assertAlmostEqual(f(3), 6.5, places=n)"],
)
def test_other_comparisons_stay(planting, text):
    made, key, _ = planting(text)
    assert "@probe" not in made
    assert key.asked == {}


@pytest.mark.parametrize(
    "before",
    [
        "class A:\n    def __eq__(self, other):\n        self.asked += 1\n        return True\n",
        "class A:\n    def __eq__(self, other):\n        return seen.append(other) or True\n",
        "class A:\n    def setUp(self):\n        self.addTypeEqualityFunc(int, self.assertNear)\n",
    ],
)
@pytest.mark.parametrize("text", ["assert f(3) == 6", "self.assertEqual(f(3), 6)"])
def test_comparisons_stay_where_comparing_is_more_than_equality(planting, before, text):
    made, key, _ = planting(text, before=before)
    assert "@probe" not in made
    assert key.asked == {}


def test_the_first_walk_changes_nothing(planting):
    made, key, comparisons = planting("assert f(3) == 6", accepted=None)
    assert made == "f(3) == 6"
    assert (key.asked, comparisons.planting) == ({}, False)


def test_what_is_come_to_is_told():
    assert ast.unparse(reached(ast.parse("f(3)").body[0], 4)) == "@probe.reached(4)"


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("'it should be 6'", ""),
        ("f'it should be 6, not {got}'", "f'{got} '"),
        ("f'it should be {6}'", ""),
        ("'it should be %s' % 6", ""),
        ("(got, 6)", ""),
        ("describe(got)", "describe(got)"),
    ],
)
def test_of_messages_stays_what_is_no_literal(planting, message, left):
    found = unsaid(ast.parse(message, mode="eval").body)
    assert (ast.unparse(found) if found else "") == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("self.assertEqual(f(3), 6, 'six')", "None)"),
        ("self.assertEqual(f(3), 6, msg=f'six, not {x}')", "msg=f'{x} ')"),
        ("self.assertAlmostEqual(f(3), 6.5, 3, 'six')", "3, None)"),
    ],
)
def test_methods_of_unittest_say_nothing(planting, text, left):
    assert planting(text)[0].endswith(left)


def test_methods_that_are_not_unittests_keep_their_arguments(planting):
    tree = ast.parse("self.assertFormError(form, 'six', 'field', 'error')").body[0]
    before = ast.dump(tree)
    key = Key()
    Comparisons(key, Decoys(random.Random(1), {}), Bindings(ast.parse("")), frozenset()).method(
        tree.value, "assertFormError", 7
    )
    assert ast.dump(tree) == before
