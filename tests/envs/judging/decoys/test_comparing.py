"""Comparisons of tests: what is asked where they stood. What comes of whole tests is in `test_sites`."""

import pytest
from planted_modules import text_of


def line_of(text: str, before: str = "") -> tuple[str, dict]:
    """What becomes of a statement of a test, and what is asked there."""
    data, key = text_of(f"{before}def test_f(self):\n    {text}\n    pass\n")
    return data.decode().removeprefix(before).splitlines()[1].strip(), key.sets


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("assert f(3) == 6", 'check(1000000000,"equal",(f(3)),'),
        ("assert f(3) is True", 'check(1000000000,"same",(f(3)),'),
        ("assert 'hellohello' in f(3)", 'check(1000000000,"inside",(f(3)),'),
        ("assert f(3) == 6 and f(4)", "equal(1000000000,(f(3)),"),
        ("self.assertEqual(f(3), 6)", "method(1000000000,self.assertEqual,True,True,"),
        ("self.assertEqual(6, f(3))", "method(1000000000,self.assertEqual,True,False,"),
        ("self.assertAlmostEqual(f(3), 6.5, places=3)", "method(1000000000,self.assertAlmostEqual,False,True,"),
        ("self.assertIs(f(3), None)", "method(1000000000,self.assertIs,False,True,"),
        ("self.assertIn('hellohello', f(3))", "method(1000000000,self.assertIn,False,False,"),
    ],
)
def test_a_comparison_with_a_literal_asks_the_probe(text, how):
    made, asked = line_of(text)
    assert f"__verifier__.{how}" in made
    assert "__verifier__.want(1000000000,(" in made
    assert asked == {0: [0]}


@pytest.mark.parametrize(
    "text",
    ["assert f(3) > 5", "assert 3 == 3", "self.assertIs(f(3), 6)", "self.assertAlmostEqual(f(3), 6.5, places=n)"],
)
def test_other_comparisons_stay_and_tell_that_they_were_come_to(text):
    made, asked = line_of(text)
    assert made == f"{text}; __verifier__.reached(1000000000)"
    assert asked == {}


@pytest.mark.parametrize(
    "before",
    [
        "class A:\n    def __eq__(self, other):\n        self.asked += 1\n        return True\n",
        "class A:\n    def __eq__(self, other):\n        return seen.append(other) or True\n",
        "class A:\n    def setUp(self):\n        self.addTypeEqualityFunc(int, self.assertNear)\n",
    ],
)
@pytest.mark.parametrize("text", ["assert f(3) == 6", "self.assertEqual(f(3), 6)"])
def test_comparisons_stay_where_comparing_is_more_than_equality(before, text):
    made, asked = line_of(text, before)
    assert "want" not in made
    assert asked == {}


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("'it should be 6'", "str()"),
        ("f'it should be 6, not {got}'", "str()"),
        ("f'it should be {6}'", "str()"),
        ("'it should be %s' % 6", "str()"),
        ("(got, 6)", "str()"),
        ("'it should be more'", "('it should be more')"),
        ("f'not {got}'", "(f'not {got}')"),
        ("describe(got)", "(describe(got))"),
    ],
)
def test_a_message_that_tells_the_value_is_dropped_and_others_stay(message, kept):
    made, _ = line_of(f"assert f(3) == 6, {message}")
    assert made.endswith(f",False,lambda:{kept})")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("self.assertEqual(f(3), 6, 'it is 6')", "(f(3)),None,str())"),
        ("self.assertEqual(f(3), 6, 'said')", "(f(3)),None,('said'))"),
        ("self.assertEqual(f(3), 6, msg=f'6, not {x}')", "(f(3)),None,msg=str())"),
        ("self.assertEqual(f(3), 6, msg=f'not {x}')", "(f(3)),None,msg=(f'not {x}'))"),
        ("self.assertAlmostEqual(f(3), 6.5, 3, 'it is 6.5')", "(f(3)),None,(3),str())"),
        ("self.assertAlmostEqual(f(3), 6.5, **options)", ""),
    ],
)
def test_messages_of_unittests_methods_too(text, left):
    made, _ = line_of(text)
    assert made.endswith(left)


@pytest.mark.parametrize("text", ["self.assertFormError(form, 'six', 'field', 'error')", "self.assertEqual(*both)"])
def test_methods_that_are_not_unittests_keep_their_arguments(text):
    assert line_of(text)[0] == f"{text}; __verifier__.reached(1000000000)"


def test_a_value_that_a_name_of_the_module_makes_is_compared_as_it_is():
    before = "from numbers import Decimal\ndef approx(x):\n    return x\n"
    for text in ("assert f(3) == approx(6)", "assert f(3) == Decimal(6)"):
        assert "want" not in line_of(text, before)[0]
