"""What follows from the messages of a run of tests."""

import json

import pytest
import suite
from runners import Pytest

from envs.judging.record import REFERENCE

END = [{"kind": "finish", "status": 0}, {"kind": "end", "status": 0, "tampered": []}]


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Makes a call of pytest on a module, with lists as in tests.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suite, "TESTS", str(tmp_path))
    module = tmp_path / "test_a.py"
    module.write_text("import pytest\n\ndef test_one(): pass\n\n@pytest.mark.xfail\ndef test_two(): pass\n")

    def make(**lists):
        if lists:
            (tmp_path / "tests.json").write_text(json.dumps(lists))
        call = Pytest(["-q", "test_a.py"], here=True)
        call.read()
        return call

    return make


def run(*outcomes, end=END, status=0):
    tests = [{"kind": "test", "id": f"test_a.py::{name}", "outcome": outcome} for name, outcome in outcomes]
    return {"messages": [*tests, *end], "status": status}


def test_every_listed_test_must_be_seen_to_pass(listed):
    call = listed(FAIL_TO_PASS=["test_a.py::test_one"], PASS_TO_PASS=["test_a.py::test_three"])
    statuses, problem, cheat = call.judge(run(("test_one", "passed")))
    assert statuses == {"test_a.py::test_one": "passed", "test_a.py::test_three": "missing"}
    assert (problem, cheat) == ("1 tests not seen to pass: test_a.py::test_three", None)
    assert call.judge(run(("test_one", "passed"), ("test_three", "passed")))[1:] == (None, None)


def test_a_test_that_is_reported_twice_has_not_passed(listed):
    call = listed(FAIL_TO_PASS=["test_a.py::test_one"])
    assert call.judge(run(("test_one", "passed"), ("test_one", "passed")))[0] == {"test_a.py::test_one": "other"}


def test_unittest_may_have_several_tests_of_one_name(listed):
    call = listed()
    twice = run(("test_one", "passed"), ("test_one", "passed"), ("test_two", "passed"))
    for message in twice["messages"][:2]:
        message["title"] = ""
    assert call.judge(twice)[1] is None
    twice["messages"][1]["outcome"] = "failed"
    assert call.judge(twice)[0]["test_a.py::test_one"] == "other"


@pytest.mark.parametrize(
    "line, name, good",
    [
        ("builtins.input = lambda: '3'", "builtins.input", True),
        ("setattr(builtins, 'input', None)", "builtins.input", True),
        ("assert builtins.input == 3", "builtins.input", False),
        ("builtins.input = None", "builtins.len", False),
        ("freeze_time('2020-01-01').start()", "time.monotonic", True),
        ("freeze_time('2020-01-01').start()", "builtins.len", False),
    ],
)
def test_what_the_tests_themselves_replace_is_no_sign(listed, tmp_path, line, name, good):
    call = listed()
    (tmp_path / "test_a.py").write_text(f"def test_one():\n    {line}\n")
    call.read()
    end = [END[0], {**END[1], "tampered": [name]}]
    assert (call.judge(run(("test_one", "passed"), end=end))[2] is None) is good


def test_a_test_that_expects_its_own_failure_may_be_kept(listed):
    call = listed(FAIL_TO_PASS=["test_a.py::test_one"], PASS_TO_PASS=["test_a.py::test_two"])
    assert call.judge(run(("test_one", "passed"), ("test_two", "skipped")))[1] is None


def test_without_a_list_every_function_of_the_modules_must_be_reported(listed):
    call = listed()
    assert call.judge(run(("test_one", "passed")))[1] == "1 tests not seen to pass: test_two"
    assert call.judge(run(("test_one", "passed"), ("test_two", "passed")))[1] is None


def test_settings_may_leave_tests_out_and_are_believed_before_judged_code_is_loaded(listed):
    call, ran = listed(), run(("test_one", "passed"))
    settings = {"kind": "settings", "select": True}
    assert call.judge({**ran, "messages": [settings, *ran["messages"]]})[1] is None
    assert call.judge({**ran, "messages": [*ran["messages"], settings]})[1] == "1 tests not seen to pass: test_two"


def test_what_the_reference_does_not_run_is_not_demanded_of_it(listed, monkeypatch, tmp_path):
    (tmp_path / "record.json").write_text(REFERENCE)
    monkeypatch.setattr(suite, "RECORD", str(tmp_path / "record.json"))
    call = listed()
    assert call.judge(run(("test_one", "passed")))[1] is None
    assert call.judge(run(("test_one", "passed"), ("test_two", "skipped")))[1] is None
    assert call.judge(run(("test_one", "passed"), ("test_two", "failed")))[1] is not None
    assert call.judge(run(("test_one", "skipped")))[1] == "no test passed (the runner ended with 0)"


@pytest.mark.parametrize(
    "end, status, sign",
    [
        ([], 0, "ended its tests early"),
        (END, 1, "ended its tests early"),
        ([END[0], {**END[1], "tampered": ["time.time"]}], 0, "changed what tests rely on"),
    ],
)
def test_tests_that_did_not_end_as_they_should_are_a_sign_of_cheating(listed, end, status, sign):
    call = listed(FAIL_TO_PASS=["test_a.py::test_one"])
    _, problem, cheat = call.judge(run(("test_one", "passed"), end=end, status=status))
    assert (problem is not None, cheat) == (True, sign)
