"""What is read of a run of a project's suite."""

from envs.tasks.forge.suite import failure_summary, parse_report


def test_addresses_and_pointers_are_left_out_of_what_is_observed():
    message = (
        "t.py:1: in test\n    assert f() == a\nE   assert <A at 0x7f00aa> == None\nE    +  where <A> = f()\nE   ? ^"
    )
    assert failure_summary(message) == ">>> assert f() == a\nassert <A at 0x...> == None"


def test_an_id_that_is_reported_twice_and_a_skipped_test_count_for_nothing():
    case = '<testcase classname="t" name="{}" file="t.py">{}</testcase>'
    cases = [case.format("a", ""), case.format("b", ""), case.format("b", ""), case.format("c", "<skipped/>")]
    outcome = parse_report(f"<testsuite>{''.join(cases)}</testsuite>".encode())
    assert outcome.passed == {"t.py::a"}
    assert outcome.failed == frozenset()


def test_an_inherited_test_belongs_to_the_module_that_ran_it():
    case = '<testcase classname="tests.test_b.TestB" name="test_x" file="tests/__init__.py"></testcase>'
    outcome = parse_report(f"<testsuite>{case}</testsuite>".encode(), files_run=["tests/test_a.py", "tests/test_b.py"])
    assert outcome.passed == {"tests/test_b.py::TestB::test_x"}
    assert outcome.files == {"tests/test_b.py::TestB::test_x": "tests/test_b.py"}


def test_a_suite_that_left_no_report_has_no_tests():
    assert parse_report(b"").passed == parse_report(b"<half").passed == frozenset()
