"""What this process knows of sites and sets."""

import ast

import pytest

from envs.judging.decoys.key import Key, id_of
from envs.judging.decoys.sets import Choice


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"a\n\x00\xff", r"a\n\x00\xff"), ("a\n\u20ac", r"a\n\u20ac"), (3, "3"), (None, "None")],
)
def test_an_id_is_written_as_pytest_writes_it(value, text):
    assert id_of(value) == text


def test_of_a_module_that_is_forgotten_nothing_is_asked():
    key, node = Key(), ast.parse("x").body[0]
    key.must = {("/tests/a.py", "test_a"): {0}, ("/tests/b.py", "test_b"): {1}}
    key.sets = {key.site("/tests/a.py", node): [0], key.site("/tests/b.py", node): [1]}
    key.forget("/tests/a.py")
    assert (key.must, key.sets) == ({("/tests/b.py", "test_b"): {1}}, {1: [1]})


def test_a_set_has_one_number():
    key = Key()
    one, other = Choice([], 0), Choice([], 0)
    assert [key.answer(one), key.answer(other), key.answer(one)] == [0, 1, 0]
