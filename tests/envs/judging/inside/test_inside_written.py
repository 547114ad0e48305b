"""The tests of modules, as they are written."""

import ast

import pytest
import written
from written import Written

TESTS = """
import pytest

def test_one(): assert helper()

@pytest.mark.xfail
def test_two(): assert 0

@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.xfail)])
def test_rows(x): pass

def test_skips(): pytest.skip("today")

def helper(): return 1
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "test_a.py"
    path.write_text(TESTS)
    return path


def test_tests_are_found_in_modules_and_classes():
    tree = ast.parse(
        "import pytest\ndef test_a(): pass\ndef other(): pass\n"
        "@pytest.fixture\ndef test_data(): pass\n"
        "class T:\n    def test_b(self): pass\n    def c(self): pass\n"
        "class U:\n    __test__ = False\n    def test_c(self): pass\n"
        "class V:\n    def __init__(self): pass\n    def test_d(self): pass\n"
        "def test_e(): pass\ntest_e.__test__ = False\ndef test_f(): pass\ndel test_f\n"
        "@nose.nottest\ndef test_g(): pass\n"
    )
    assert [name for name, _ in written.tests(tree)] == ["test_a", "T::test_b"]


def test_a_test_may_fail_where_a_mark_without_a_condition_says_so(module):
    written = Written([str(module)])
    assert written.may_fail("test_a.py::test_two")
    assert not written.may_fail("test_a.py::test_one")
    assert not written.may_fail("test_a.py::nowhere")
    assert [written.failing_rows(f"test_a.py::{name}") for name in ("test_rows[2]", "test_one")] == [1, 0]


def test_a_test_may_skip_itself_and_nothing_else_may_skip_it(module):
    written, path = Written([str(module)]), str(module)
    assert written.may_skip("test_a.py::test_skips", path)
    # A test that is parametrised by nothing is skipped, by rows that are written out it is not.
    assert not written.may_skip("test_a.py::test_rows[1]", path)
    module.write_text(TESTS.replace("[1, pytest", "ROWS + [pytest"))
    assert Written([path]).may_skip("test_a.py::test_rows[1]", path)
    module.write_text("import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip()\n")
    written = Written([path])
    assert [written.may_skip(f"test_a.py::{name}", path) for name in ("test_one", "test_two")] == [False, True]
    assert not written.may_skip("test_a.py::test_two", "/elsewhere.py")
    assert not written.may_skip("test_a.py::test_two", None)


def test_a_module_that_is_no_python_has_no_tests_and_an_error(module):
    module.write_text("def test_one(:\n")
    written = Written([str(module)])
    assert written.functions(str(module)) == {}
    assert "test_a.py" in written.trees[str(module)]


@pytest.mark.parametrize(
    "marks, least",
    [
        ("@m.parametrize('x', [1, 2, 3])", 3),
        ("@m.parametrize('x', [1, 2])\n@m.parametrize('y', (3, 4, 5))", 6),
        ("@m.parametrize('x', [1, *more, 2])", 2),
        ("@m.parametrize('x', rows)", 1),
        ("@m.parametrize('x', [])", 1),
    ],
)
def test_a_test_is_run_once_for_each_row_that_is_written_out(marks, least):
    (node,) = ast.parse(marks + "\ndef test_a(x, y): pass\n").body
    assert written.rows(node) == least
    assert written.lacks({"a.py::test_a": least - 1}, "/t/a.py", "test_a", node)
    assert not written.lacks({"a.py::test_a": least}, "/t/a.py", "test_a", node)
