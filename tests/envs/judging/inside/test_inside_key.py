"""What root's process knows of sites and sets."""

import ast

import pytest
from decoys import Choice
from key import Key, id_of


def test_sites_are_named_by_their_place_and_how_many_are_there():
    key, node = Key(), ast.parse("x").body[0]
    assert [key.site("/tests/a.py", node), key.site("/tests/a.py", node), key.site("/tests/b.py", node)] == [0, 1, 2]
    assert key.names() == [("/tests/a.py", 1, 0, 0), ("/tests/a.py", 1, 0, 1), ("/tests/b.py", 1, 0, 0)]


def test_a_set_has_one_number():
    key = Key()
    one, other = Choice([], 0, 0), Choice([], 0, 0)
    assert [key.answer(one), key.answer(other), key.answer(one)] == [0, 1, 0]


def test_ids_of_tests_have_expected_values_again_in_place_of_tokens():
    key = Key()
    tokens = [key.token(value) for value in (4, "a", 4, b"a")]
    assert tokens[0] == tokens[2] and tokens[1] == tokens[3] != tokens[0]
    assert key.real_id(f"a.py::test_a[{tokens[0]}-{tokens[1]}]") == "a.py::test_a[4-a]"
    assert key.real_id("a.py::test_a[decoy99x0]") == "a.py::test_a[decoy99x0]"


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"a\n\x00\xff", r"a\n\x00\xff"), ("a\n\u20ac", r"a\n\u20ac"), (3, "3"), (None, "None")],
)
def test_an_id_is_written_as_pytest_writes_it(value, text):
    assert id_of(value) == text


def test_of_a_module_that_is_forgotten_nothing_is_asked():
    key = Key()
    key.must = {("/tests/a.py", "test_a"): {1}, ("/tests/b.py", "test_b"): {2}}
    key.forget("/tests/a.py")
    assert key.must == {("/tests/b.py", "test_b"): {2}}
