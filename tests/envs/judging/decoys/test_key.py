"""What this process knows of sites and sets."""

import ast

from envs.judging.decoys import key as keys


def test_of_a_module_that_is_forgotten_nothing_is_asked():
    key, node = keys.Key(), ast.parse("x").body[0]
    key.must = {("/tests/a.py", "test_a"): {0}, ("/tests/b.py", "test_b"): {1}}
    key.sets = {key.site("/tests/a.py", node): [0], key.site("/tests/b.py", node): [1]}
    key.forget("/tests/a.py")
    assert (key.must, key.sets) == ({("/tests/b.py", "test_b"): {1}}, {1: [1]})


def test_bytes_stand_in_an_id_as_pytest_writes_them():
    assert keys.id_of(b"a\\b\t\x7f\xff'") == "a\\b\\t\\x7f\\xff'"
