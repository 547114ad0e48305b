"""Sets of literals: all differ, and none shows that it is the expected one."""

import ast
import collections
import random

import pytest
from planted_modules import parsed

from envs.judging.decoys import sets
from envs.judging.decoys.literals import Names, evaluated, leaves_of

WORDS = sets.vocabulary(
    [ast.parse(repr("alpha beta gamma delta epsilon zeta theta iota kappa lambda sigma omega " * 2))]
)
IMPORTED = {
    "Decimal": "decimal.Decimal",
    "Fraction": "fractions.Fraction",
    "Path": "pathlib.Path",
    "approx": "pytest.approx",
    "datetime": "datetime",
    "date": "datetime.date",
    "UUID": "uuid.UUID",
}
NAMES = Names(IMPORTED, {"tuple"})
LITERALS = """
0; 3; 100; -42; 0.0; 2.5; 1e-07; 3.14159; True
''; 'a'; 'alpha'; 'alpha beta'; 'v1.20'; 'A-B'; ', '; '\\n'; b''; b'abc'; '\\xe9'
[]; (); {}; [1, 2]; (1,); {'a': 1}; {1, 2}; [[1], [2]]; [True, False]; [None, 1]; {'a': None}
Decimal('1.5'); datetime.date(2020, 2, 28); approx(0.3); set([1, 2]); range(3); bytearray(b'ab')
Fraction(3, 7); Path('a/bcd'); date(2020, 2, 3); datetime.timedelta(days=12); approx([0.25, 3.5]); approx({'a': 2.5})
[Decimal('1.5'), date(2020, 2, 3)]; {'a': Path('b/cd')}; UUID('12345678123456781234567812345678')
[name, 1]; {name: 1}
"""


def choose(text, seed=0, **options):
    sought = sets.looked_for([parsed(f"{text} in x")]) if "within" in options else ()
    return sets.Decoys(random.Random(seed), WORDS, sought).choose(parsed(text), NAMES, **options)


def values_of(choice):
    """The literals of a set as texts, without what they stand in."""
    return {repr([leaf.value for leaf in leaves_of(node, (), NAMES)]) for node in choice.nodes}


@pytest.mark.parametrize("text", LITERALS.strip().replace("\n", "; ").split("; "))
def test_a_literal_stands_among_others_of_its_kind(text):
    for seed in range(10):
        choice = choose(text, seed)
        shown = [ast.unparse(node) for node in choice.nodes]
        assert 2 <= len(shown) <= sets.WAYS
        assert len(set(shown)) == len(shown)
        truth = evaluated(parsed(text), NAMES)
        assert evaluated(choice.nodes[choice.truth], NAMES) == truth
        others = [evaluated(node, NAMES) for i, node in enumerate(choice.nodes) if i != choice.truth]
        if truth:
            assert all(type(other[0]) is type(truth[0]) and other[0] != truth[0] for other in others)


@pytest.mark.parametrize(
    "text", ["f(3)", "[f(3)]", "[*a]", "a", "a.b", "x[0]", "tuple([1])", "None", "[name]", "...", "Decimal('x')"]
)
def test_what_may_be_of_any_kind_stays(text):
    assert choose(text) is None


def test_each_place_of_a_set_is_as_likely_to_hold_the_expected_one():
    seen = collections.Counter(choose("'alpha 12'", seed).truth for seed in range(800))
    assert len(seen) == sets.WAYS and max(seen.values()) < 2 * min(seen.values())


@pytest.mark.parametrize("text", ["7", "100", "4321", "2.5", "'alpha'", "'x-12'", "[1, 2]", "{'a': 10}"])
def test_the_sets_of_a_value_and_of_its_decoy_are_drawn_alike(text):
    """A member of a set, taken as the expected value, has sets with the same members as the first."""
    choice = choose(text)
    members = [
        set(map(ast.unparse, choose(ast.unparse(node), seed).nodes)) for node in choice.nodes for seed in range(60)
    ]
    assert {ast.unparse(node) for node in choice.nodes} <= set.union(*members) | {"''", "[]", "{}"}


def test_equal_expected_values_have_one_set():
    one = sets.Decoys(random.Random(1), WORDS)
    assert one.choose(parsed("'alpha'"), NAMES) is one.choose(parsed("'alpha'"), NAMES)


def test_numbers_that_are_compared_with_a_tolerance_are_far_apart():
    for seed in range(20):
        values = [evaluated(node, NAMES)[0] for node in choose("0.5", seed, tolerance=0.001).nodes]
        assert min(abs(a - b) for a in values for b in values if a is not b) > 0.05
    assert choose("0.0001", tolerance=0.01) is None
    assert choose("approx(0.0001, abs=0.01)") is None
    assert choose("approx(100, rel=0.5)") is None


def test_dicts_differ_in_their_values_and_in_keys_where_values_can_not():
    for seed in range(20):
        shown = [ast.literal_eval(ast.unparse(node)) for node in choose("{'alpha': 1, 'beta': 'x'}", seed).nodes]
        assert {tuple(one) for one in shown if one} == {("alpha", "beta")}
        shown = [ast.literal_eval(ast.unparse(node)) for node in choose("{'alpha': True}", seed).nodes]
        assert len({tuple(one) for one in shown}) > 2


def test_a_text_that_is_looked_for_has_decoys_that_are_nowhere():
    assert choose("'abc'", within=True) is None
    choice = choose("'alpha beta'", within=True)
    assert all(ast.literal_eval(node) not in WORDS["lower"] for node in choice.nodes)


def test_where_a_literal_is_written_is_no_hint():
    choice = choose("[1,   2]")
    assert len({type(node) for node in choice.nodes}) == 1
    assert all(isinstance(leaf, ast.Constant) for node in choice.nodes for leaf in node.elts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'alpha beta'", "b'alpha beta'"),
        ("2.5", "approx(2.5)"),
        ("[1.5, 20.5, 'alpha']", "(1.5, 20.5, 'alpha')"),
        ("[1.5, 20.5, 300.5]", "approx([1.5, 20.5, 300.5])"),
        ("[[10, 20], [True]]", "(10, 20, {True})"),
        ("4821", "'4821'"),
        ("-2.5", "'-2.5'"),
    ],
)
def test_two_sets_of_the_same_literals_have_no_more_in_common_than_the_expected_one_alone(one, other):
    trees = [parsed(one), parsed(other)]
    for seed in range(20):
        made = sets.Decoys(random.Random(seed), WORDS, sets.looked_for(trees))
        first, second = (values_of(made.choose(tree, NAMES)) for tree in trees)
        first, second = ({text.replace("b'", "").replace("'", "") for text in texts} for texts in (first, second))
        assert len(first & second) > 4


def test_a_text_that_is_compared_and_looked_for_is_not_what_its_sets_have_in_common():
    trees = [parsed("'alpha beta' in f()")]
    for seed in range(20):
        made = sets.Decoys(random.Random(seed), WORDS, sets.looked_for(trees))
        equal, within = (made.choose(parsed("'alpha beta'"), NAMES, within=within) for within in (False, True))
        assert len(values_of(equal) & values_of(within)) > 5
