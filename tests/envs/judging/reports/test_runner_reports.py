"""What calls of runners report of each test."""

import pytest

from envs.judging.decoys.insertion import insert_decoys
from envs.judging.reports.runner_reports import RunnerReports

WRITTEN = insert_decoys({"/tests/test_a.py": b"import time\n\ndef test_one(): time.sleep = None\n"}).source


def ended(outcome, **more):
    return {"kind": "test", "id": "test_a.py::test_one", "outcome": outcome, **more}


def test_the_last_call_says_how_a_test_ended():
    reports = RunnerReports([[ended("failed", error=True)], [ended("passed", error=False)]], WRITTEN)
    assert (reports.outcomes, reports.errors) == ({"test_a.py::test_one": "passed"}, set())


def test_a_call_that_started_and_did_not_finish_has_no_status():
    start, end = {"kind": "start", "id": "a"}, {"kind": "finish", "status": 1, "tampered": []}
    assert RunnerReports([[start, end], [start], [{"kind": "site"}]], WRITTEN).statuses == [1, None]


def test_modules_that_are_run_count_as_calls_where_no_runner_began():
    load, end = {"kind": "load"}, {"kind": "finish", "status": 0}
    assert RunnerReports([[load], [load, end]], WRITTEN).statuses == [None, 0]
    assert RunnerReports([[load, {"kind": "begin"}, end], [load]], WRITTEN).statuses == [0]


def test_what_tests_replace_themselves_is_not_tampered_with():
    end = {"kind": "finish", "status": 0, "tampered": ["time.sleep", "builtins.len", 3]}
    assert RunnerReports([[end]], WRITTEN).tampered == ["builtins.len", "3"]


@pytest.mark.parametrize("name", ["time.(", "time.(a+)+!", "time.\ud800"])
def test_names_of_replaced_things_are_no_patterns(name):
    source = insert_decoys(
        {"/tests/test_a.py": b"import time\n\ndef test_one(): time.patch(" + b"a" * 50 + b", 3)\n"}
    ).source
    assert RunnerReports([[{"kind": "finish", "status": 0, "tampered": [name]}]], source).tampered == []


def test_no_more_replaced_things_are_looked_for_than_code_can_honestly_replace():
    names = [f"builtins.name_{number}" for number in range(5_000)]
    reports = RunnerReports([[{"kind": "finish", "status": 0, "tampered": 2 * names}]], WRITTEN)
    assert reports.tampered == names[:200]
