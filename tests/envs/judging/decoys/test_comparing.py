"""Comparisons of tests: what is asked where they stood. What comes of whole tests is in `test_sites`."""

import re

import pytest
from planted_modules import text_of


def line_of(text: str, before: str = "") -> tuple[str, dict]:
    """What becomes of a statement of a test, and what is asked there."""
    data, key = text_of(f"{before}def test_f(self):\n    {text}\n    pass\n")
    return data.decode().removeprefix(before).splitlines()[1].strip(), key.sets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("assert f(3) == 6", "assert [PROBE.equal(1000000000,(f(3)),WANT)][0]"),
        ("assert 6 == f(3), 'no'", "assert [PROBE.equal(1000000000,WANT,(f(3)))][0], 'no'"),
        ("assert f(3) is True", "assert [PROBE.same(1000000000,(f(3)),WANT)][0]"),
        ("assert 'hellohello' in f(3)", "assert [PROBE.inside(1000000000,WANT,(f(3)))][0]"),
        ("assert f(3) == 6 and f(4)", "assert [PROBE.equal(1000000000,(f(3)),WANT)][0] and f(4)"),
        ("self.assertTrue(f(3) == 6)", "self.assertTrue([PROBE.equal(1000000000,(f(3)),WANT)][0])"),
        ("self.assertEqual(f(3), 6)", "PROBE.method(1000000000,self.assertEqual,True)(f(3), WANT)"),
        ("self.assertEqual(6, f(3))", "PROBE.method(1000000000,self.assertEqual,True)(WANT, f(3))"),
        (
            "self.assertAlmostEqual(f(3), 6.5, places=3)",
            "PROBE.method(1000000000,self.assertAlmostEqual,False)(f(3), WANT, places=3)",
        ),
        ("self.assertIs(f(3), None)", "PROBE.method(1000000000,self.assertIs,False)(f(3), WANT)"),
        ("self.assertIn('hellohello', f(3))", "PROBE.method(1000000000,self.assertIn,False)(WANT, f(3))"),
    ],
)
def test_a_comparison_with_a_literal_asks_the_probe(text, shown):
    made, asked = line_of(text)
    assert re.sub(r"__verifier__\.want\(1000000000,\(.*?,\)\)", "WANT", made).replace("__verifier__", "PROBE") == shown
    assert asked == {0: [0]}


@pytest.mark.parametrize(
    "text",
    [
        "assert f(3) > 5",
        "assert 3 == 3",
        "self.assertIs(f(3), 6)",
        "self.assertAlmostEqual(f(3), 6.5, places=n)",
        "self.assertAlmostEqual(f(3), 6.5, **options)",
        "self.assertEqual(*both)",
        "self.assertFormError(form, 'six', 'field', 'error')",
    ],
)
def test_other_comparisons_stay_and_tell_that_they_were_come_to(text):
    made, asked = line_of(text)
    assert made == f"{text}; __verifier__.reached(1000000000)"
    assert asked == {}


@pytest.mark.parametrize(
    "before",
    [
        "class A:\n    def __eq__(self, other):\n        self.asked += 1\n        return True\n",
        "class A:\n    def setUp(self):\n        self.addTypeEqualityFunc(int, self.assertNear)\n",
    ],
)
@pytest.mark.parametrize("text", ["assert f(3) == 6", "self.assertEqual(f(3), 6)"])
def test_comparisons_stay_where_comparing_is_more_than_equality(before, text):
    made, asked = line_of(text, before)
    assert "want" not in made
    assert asked == {}


@pytest.mark.parametrize(
    ("message", "is_kept"),
    [
        ("'it should be 6'", False),
        ("f'it should be 6, not {got}'", False),
        ("f'it should be {6}'", False),
        ("'it should be %s' % 6", False),
        ("(got, 6)", False),
        ("'it should be more'", True),
        ("f'not {got}'", True),
        ("describe(got)", True),
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "assert f(3) == 6, {}",
        "assert f(3) and f(3) == 6, {}",
        "self.assertEqual(f(3), 6, {})",
        "self.assertEqual(f(3), 6, msg={})",
        "self.assertAlmostEqual(f(3), 6, 3, {})",
        "self.assertTrue(f(3) == 6, {})",
    ],
)
def test_a_message_that_tells_the_value_is_dropped_and_others_stay(text, message, is_kept):
    made, _ = line_of(text.format(message))
    assert made.endswith(text.format(message if is_kept else "str()").rpartition(" ")[2])
    assert (message in made) is is_kept


def test_a_value_that_a_name_of_the_module_makes_is_compared_as_it_is():
    before = "from numbers import Decimal\ndef approx(x):\n    return x\n"
    for text in ("assert f(3) == approx(6)", "assert f(3) == Decimal(6)"):
        assert "want" not in line_of(text, before)[0]
