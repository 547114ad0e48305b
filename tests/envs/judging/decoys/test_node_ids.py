"""Tests by their ids, files and decorators."""

import ast

import pytest

from envs.judging.decoys import node_ids


@pytest.mark.parametrize(
    "decorator, expects",
    [
        ("pytest.mark.xfail", True),
        ("pytest.mark.xfail()", True),
        ("pytest.mark.xfail(reason='broken', run=False)", True),
        ("unittest.expectedFailure", True),
        ("expectedFailure", True),
        ("pytest.mark.xfail(sys.platform == 'win32', reason='there')", False),
        ("pytest.mark.xfail(raises=ValueError)", False),
        ("pytest.mark.skip", False),
        ("xfail", False),
    ],
)
def test_a_mark_without_a_condition_expects_a_failure(decorator, expects):
    assert node_ids.expects_failure(ast.parse(decorator, mode="eval").body) is expects


def test_modules_of_tests_are_known_by_their_names():
    names = ["test_a.py", "tests.py", "a_test.py", "a_tests.py", "conftest.py", "test_a.txt", "a.py"]
    assert [name for name in names if node_ids.is_test_module(name)] == names[:4]


def test_rows_that_are_expected_to_fail_are_counted():
    source = """
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.xfail), pytest.param(3, marks=[x, mark.xfail()]),
    pytest.param(4, marks=pytest.mark.skip), pytest.param(5, marks=pytest.mark.xfail(raises=KeyError))])
def test_a(x): pass
"""
    (decorator,) = ast.parse(source).body[0].decorator_list
    assert node_ids.failing_rows(decorator) == 2


@pytest.mark.parametrize(
    ("test", "files", "found"),
    [
        ("tests/test_a.py::test_it", ["tests/test_a.py"], True),
        ("test_a.py::test_it[1]", ["tests/test_a.py"], True),
        ("app/tests/test_a.py::Case::test_it", ["a.py", "tests/test_a.py"], True),
        ("../app/test_a.py::test_it", ["test_a.py"], True),
        ("tests/test_a.py::test_it", ["other/test_a.py", "a.py"], False),
        ("::test_it", ["test_a.py"], False),
        ("a/b/c/tests/test_a.py::test_it", ["x/b/c/tests/test_a.py"], True),
        ("a/b/x/tests/test_a.py::test_it", ["a/b/c/tests/test_a.py"], False),
    ],
)
def test_the_file_of_a_test_is_known_by_what_both_name(test, files, found):
    assert node_ids.Files(files).hold(test) is found
