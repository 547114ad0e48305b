"""What is demanded of the tests."""

import pytest

from envs.judging.decoys.source_tests import SourceTests
from envs.judging.reports.required import RequiredTests
from envs.judging.reports.runner_reports import RunnerReports

A, B = "test_a.py::test_a", "test_a.py::test_b"


def reports(*outcomes):
    messages = [
        {"kind": "test", "id": name, "outcome": outcome, "title": title, "error": error}
        for name, outcome, title, error in outcomes
    ]
    return RunnerReports([messages], SourceTests({}, {}))


@pytest.mark.parametrize(
    ("listed", "record", "test", "included"),
    [
        ({}, {}, A, True),
        ({}, {"tests": {A: []}}, A, True),
        ({}, {"tests": {A: []}}, B, False),
        ({"FAIL_TO_PASS": [A]}, {"tests": {B: []}}, B, False),
        ({"PASS_TO_PASS": [A]}, {}, A, True),
        ({"PASS_TO_PASS": [A]}, {}, f"{A}[1]", False),
        ({"PASS_TO_PASS": [A], "FUNCTIONS": True}, {}, f"{A}[1]", True),
        ({"PASS_TO_PASS": [f"{A}[one"]}, {}, f"{A}[one two]", True),
        ({"PASS_TO_PASS": [f"{A}[/x.py]"]}, {}, f"{A}[/root/x.py]", True),
        ({"PASS_TO_PASS": [f"{A}[/x.py]"]}, {}, f"{A}[/root/y.py]", False),
        ({"PASS_TO_PASS": [f"{A}[/x.py]"]}, {}, f"{A}[//host/x.py]", False),
    ],
)
def test_what_must_pass_is_the_lists_or_else_the_references_or_else_all(listed, record, test, included):
    assert RequiredTests(listed, record).includes(test) is included


def test_an_id_that_was_cut_at_a_blank_stands_for_all_that_begin_so():
    required = RequiredTests({"FAIL_TO_PASS": [f"{A}[one"]}, {})
    for outcomes, status in ((("passed", "passed"), "passed"), (("passed", "failed"), "failed")):
        outcome = {f"{A}[one {number}]": one for number, one in enumerate(outcomes)}
        assert required.statuses(outcome, reports())[f"{A}[one"] == status
    assert required.statuses({}, reports())[f"{A}[one"] == "missing"


def test_an_id_with_the_last_part_of_a_path_stands_for_unlisted_ones_with_such_a_path():
    """As requests' `test_unzipped_paths_unchanged[/location]`, of `[/etc/invalid/location]`."""
    required = RequiredTests({"FAIL_TO_PASS": [f"{A}[/x]", f"{A}[/x/y]", f"{A}[/]"]}, {})
    for outcomes, status in (
        ({"/etc/x": "passed", "/x/y": "failed", "/": "failed"}, "passed"),
        ({"/etc/x": "passed", "/a/b/x": "failed"}, "failed"),
        ({"/x": "passed", "/etc/x": "failed"}, "passed"),
        ({"/x/y": "passed", "//etc/x": "passed", "/*/x": "passed", "/": "passed"}, "missing"),
    ):
        outcome = {f"{A}[{case}]": one for case, one in outcomes.items()}
        assert required.statuses(outcome, reports())[f"{A}[/x]"] == status
    outcome = {f"{A}[/etc/y]": "passed", f"{A}[/usr/]": "passed"}
    assert required.statuses(outcome, reports())[f"{A}[/x/y]"] == "missing"
    assert required.statuses(outcome, reports())[f"{A}[/]"] == "passed"


def test_a_title_stands_for_all_tests_that_have_it():
    required = RequiredTests({"FAIL_TO_PASS": ["It adds", "It takes"], "UNITTEST": True}, {})
    run = reports((A, "passed", "It adds", False), (B, "failed", "It adds", False))
    assert required.statuses(run.outcomes, run)["It adds"] == "failed"
    both = run.outcomes | {B: "passed"}
    assert required.statuses(both, run)["It adds"] == "passed"
    assert required.statuses(run.outcomes, run)["It takes"] == "missing"


def test_where_ends_are_exact_a_test_passes_that_ends_as_it_must():
    required = RequiredTests({"FAIL_TO_PASS": [A], "EXACT": {B: "error", "test_a.py::test_c": "failed"}}, {})
    run = reports((B, "failed", "b", True), ("test_a.py::test_d", "passed", "d", False))
    ended = {A: "missing", B: "passed", "test_a.py::test_c": "missing", "test_a.py::test_d": "other"}
    assert required.statuses(run.outcomes, run) == ended
    assert required.failing() == {B, "test_a.py::test_c"}


@pytest.mark.parametrize(
    ("outcome", "lost"),
    [
        ({f"{A}[1]": "passed", f"{A}[2]": "passed", B: "passed"}, set()),
        ({f"{A}[7]": "passed", f"{A}[8]": "passed", f"{A}[9]": "passed", B: "passed"}, set()),
        ({f"{A}[7]": "passed", f"{A}[8]": "failed", B: "passed"}, {f"{A}[1]", f"{A}[2]"}),
        ({f"{A}[1]": "passed", f"{B}[2]": "passed"}, {f"{A}[2]", B}),
        ({f"{A}[1]": "failed", f"{A}[7]": "passed", B: "passed"}, set()),
    ],
)
def test_another_case_of_a_test_stands_for_a_recorded_one(outcome, lost):
    record = {"tests": {f"{A}[1]": [], f"{A}[2]": [], B: []}}
    assert RequiredTests({}, record).lost(outcome) == lost
