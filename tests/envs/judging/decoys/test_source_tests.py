"""The tests of modules, as they are source_tests."""

import ast

import pytest

from envs.judging.decoys import source_tests
from envs.judging.decoys.source_tests import SourceTests

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
PATH = "/tests/test_a.py"


def known(text=TESTS, path=PATH, **others):
    sources = {path: text, **{f"/tests/{name}.py": source for name, source in others.items()}}
    return SourceTests(
        {where: ast.parse(source) for where, source in sources.items()},
        {where: source.encode() for where, source in sources.items()},
    )


def test_tests_are_found_in_modules_and_classes():
    tree = ast.parse(
        "import pytest, unittest\ndef test_a(): pass\ndef other(): pass\n"
        "@pytest.fixture\ndef test_data(): pass\n"
        "class TestT:\n    def test_b(self): pass\n    def c(self): pass\n"
        "class TestU:\n    __test__ = False\n    def test_c(self): pass\n"
        "class TestV:\n    def __init__(self): pass\n    def test_d(self): pass\n"
        "def test_e(): pass\ntest_e.__test__ = False\ndef test_f(): pass\ndel test_f\n"
        "@nose.nottest\ndef test_g(): pass\n"
        "class Plain:\n    def test_h(self): pass\n"
        "class Cases(unittest.TestCase):\n    def test_i(self): pass\n"
        "class TestOfABase(Plain):\n    pass\n"
        "class TestOfTwo(unittest.TestCase):\n    def test_k(self): pass\nclass More(TestOfTwo):\n    pass\n"
        "class TestOuter:\n    class TestInner:\n        def test_j(self): pass\n"
    )
    found = [name for name, _ in source_tests.tests(tree)]
    assert found == [
        "test_a",
        "TestT::test_b",
        "Cases::test_i",
        "TestOfABase::test_h",
        "TestOfTwo::test_k",
        "More::test_k",
        "TestOuter::TestInner::test_j",
    ]


def test_a_class_has_the_tests_of_its_bases_in_their_order_if_nothing_unknown_may_change_them():
    tree = ast.parse(
        "class A:\n    def test_x(self): pass\n    def test_y(self): pass\n"
        "class B:\n    def test_x(self): pass\n    def test_z(self): pass\n"
        "class TestC(A, B):\n    test_z = None\n"
        "class TestD(A, metaclass=M):\n    pass\nclass TestE(Unknown, A):\n    pass\n@odd\nclass TestF(A):\n    pass\n"
    )
    assert {name: node.lineno for name, node in source_tests.tests(tree)} == {"TestC::test_x": 2, "TestC::test_y": 3}


def test_a_test_may_fail_where_its_mark_or_that_of_its_class_or_module_says_so():
    assert known().may_fail("test_a.py::test_two")
    assert not any(known().may_fail(f"test_a.py::{name}") for name in ("test_one", "nowhere"))
    within = known(
        "@pytest.mark.xfail\nclass TestA:\n    def test_a(self): pass\n"
        "class TestB:\n    pytestmark = [pytest.mark.slow, pytest.mark.xfail]\n"
        "    class TestC:\n        def test_c(self): pass\n"
        "class TestD:\n    def test_d(self): pass\n"
    )
    tests = ("TestA::test_a", "TestB::TestC::test_c", "TestD::test_d")
    assert [within.may_fail(f"test_a.py::{name}") for name in tests] == [True, True, False]
    assert known("pytestmark = pytest.mark.xfail(reason='all')\n" + TESTS).may_fail("test_a.py::test_one")


def test_a_test_may_skip_itself_and_nothing_else_may_skip_it():
    assert known().may_skip("test_a.py::test_skips", PATH)
    # A test that is parametrised by nothing is skipped, by rows that are written out it is not.
    assert not known().may_skip("test_a.py::test_rows[1]", PATH)
    assert known(TESTS.replace("[1, pytest", "ROWS + [pytest")).may_skip("test_a.py::test_rows[1]", PATH)
    two = known("import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip()\n")
    assert [two.may_skip(f"test_a.py::{name}", PATH) for name in ("test_one", "test_two")] == [False, True]
    assert not two.may_skip("test_a.py::test_two", "/elsewhere.py")
    assert not two.may_skip("test_a.py::test_two", None)


@pytest.mark.parametrize(
    ("marks", "least"),
    [
        ("@m.parametrize('x', [1, 2, 3])", 3),
        ("@m.parametrize('x', [1, 2])\n@m.parametrize('y', (3, 4, 5))", 6),
        ("@m.parametrize('x', [1, *more, 2])", 2),
        ("@m.parametrize('x', rows)", 1),
        ("@m.parametrize('x', [])", 1),
    ],
)
def test_a_test_is_run_once_for_each_row_that_is_written_out(marks, least):
    one = known(marks + "\ndef test_a(x, y): pass\ndef test_b(): pass\n")
    rows = [f"test_a.py::test_a[{number}]" for number in range(least)]
    assert one.unseen([*rows, "test_a.py::test_b"]) == []
    assert one.unseen([*rows[1:], "test_a.py::test_b"]) == ["test_a"]


def test_of_a_module_that_did_not_run_at_all_nothing_is_missed():
    two = known("def test_a(): pass\ndef test_b(): pass\n", test_c="def test_c(): pass\n")
    assert two.unseen(["test_a.py::test_a"]) == ["test_b"]
    assert two.unseen([]) == []


def test_tests_that_may_have_been_made_into_others_need_not_be_seen():
    made = "class TestA:\n    @expand([1])\n    def test_a(self, x): ...\n    @a.mark.b\n    def test_b(self): ...\n"
    others = "@parameterized_class('x', [1])\nclass TestB:\n    def test_c(self): ...\ndef test_d(): ...\n"
    one = known(made + others)
    assert one.unseen(["test_a.py::TestA::test_a_0_1", "test_a.py::TestA::test_b", "test_a.py::test_d"]) == []
    assert one.unseen(["test_a.py::test_d"]) == ["TestA::test_b"]


def test_a_class_method_is_not_missed_since_older_versions_of_pytest_leave_it_out():
    one = known("class TestA:\n    def test_a(self): pass\n    @classmethod\n    def test_b(cls): pass\n")
    assert one.unseen(["test_a.py::TestA::test_a"]) == []
    assert one.unseen(["test_a.py::TestA::test_b"]) == ["TestA::test_a"]


@pytest.mark.parametrize(
    ("test", "path"),
    [
        ("tests/test_a.py::test_a", "/app/tests/test_a.py"),
        ("sub/test_a.py::test_a", "/app/sub/test_a.py"),
        ("/app/sub/test_a.py::test_a[1]", "/app/sub/test_a.py"),
    ],
)
def test_of_modules_of_one_name_an_id_stands_for_that_whose_path_is_like_its_own(test, path):
    trees = {f"/app/{folder}/test_a.py": ast.parse("def test_a(): pass") for folder in ("tests", "sub")}
    assert SourceTests(trees, {}).of(test) == [(path, "test_a")]


@pytest.mark.parametrize(
    ("test", "is_it"),
    [
        ("tests/test_a.py::test_one", True),
        ("./tests/test_a.py::test_one", True),
        ("test_one", True),
        ("::test_one", True),
        ("elsewhere/test_a.py::test_one[1]", True),  # a copy
        ("::test_onely", False),
        ("a.py::test_one", False),
        ("tests/test_b.py::test_one", False),
    ],
)
def test_an_id_is_that_of_a_test_in_the_file_it_names(test, is_it):
    assert known().of(test) == ([(PATH, "test_one")] if is_it else [])


def test_tests_of_others_do_not_count_beside_hidden_ones():
    assert known().counts("tests/test_a.py::test_mine") and known().counts("test_two")
    assert not known().counts("tests/test_agent.py::test_mine")
    assert SourceTests({}, {}).counts("tests/test_agent.py::test_mine")


def test_tests_of_a_hidden_module_that_this_python_can_not_read_have_to_pass():
    both = {PATH: TESTS.encode(), "/tests/test_new.py": b"def test_new(x: int | =): pass"}
    for trees in ({PATH: ast.parse(TESTS)}, {}):
        some = SourceTests(trees, both)
        assert some.counts("tests/test_new.py::test_new") and some.counts("tests/test_a.py::test_one")
        assert not some.counts("tests/test_agent.py::test_mine")


@pytest.mark.parametrize(
    ("line", "name", "relied_on"),
    [
        ("builtins.abs = lambda: '3'", "builtins.abs", False),
        ("setattr(builtins, 'abs', None)", "builtins.abs", False),
        ("patch('builtins.abs').start()", "builtins.abs", False),
        ("mock.patch.object(a_module_of_tests, 'helper').start()", "helper", False),
        ("assert builtins.abs == 3", "builtins.abs", True),
        ("builtins.abs = None", "builtins.len", True),
        ("freeze_time('2020-01-01').start(); monotonic()", "time.monotonic", False),
        ("freeze_time('2020-01-01').start()", "builtins.len", True),
        ("began = time.monotonic()", "time.monotonic", True),
        ("time.sleep(1)", "time.monotonic", False),
    ],
)
def test_tests_rely_on_what_they_do_not_replace_and_on_clocks_that_they_read(line, name, relied_on):
    assert known(f"def test_one():\n    {line}\n").rely_on(name) is relied_on
