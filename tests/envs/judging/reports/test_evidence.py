"""What follows from what sites report."""

import ast

import pytest

from envs.judging.decoys.insertion import DecoyedTests
from envs.judging.decoys.key import FIRST, Key
from envs.judging.decoys.sets import Choice
from envs.judging.decoys.source_tests import SourceTests
from envs.judging.reports.evidence import FORCED, Evidence

NODES = [ast.Constant(value) for value in (7, 3, 5, 1)]
ID = "test_a.py::test_f"
PASSED = {ID: "passed"}
WRITTEN = SourceTests({"/tests/test_a.py": ast.parse("def test_f(): pass")}, {})


def everything(test):
    return True


def of(key, record=None):
    return Evidence(DecoyedTests({}, key, WRITTEN), record or {})


def reports(*outcomes, record=None):
    """The evidence of one test with one site, where 3 is expected."""
    key = Key()
    site = key.site("/tests/test_a.py", ast.Pass(lineno=1, col_offset=0))
    key.answer(Choice(NODES, 1))
    key.sets[site] = [0]
    key.must["/tests/test_a.py", "test_f"] = key.certain = {site}
    seen = of(key, record)
    sites = [{"kind": "site", "site": FIRST + site, "set": FIRST, "equal": equal} for equal in outcomes]
    seen.read([{"kind": "start", "id": ID}, *sites])
    return seen


@pytest.mark.parametrize(
    ("outcomes", "status", "sign"),
    [
        (["0100"], "passed", None),
        (["0000", "0100"], "passed", None),
        (["0100", "1000"], "failed", None),
        (["0110"], "failed", None),
        (["1111"], "failed", FORCED),
        (["0010"], "failed", None),
        ([], "failed", FORCED),
        (["01"], "failed", FORCED),
        ([""], "failed", FORCED),
    ],
)
def test_a_test_passes_by_the_expected_value_alone(outcomes, status, sign):
    assert reports(*outcomes).judge(PASSED, everything) == ({ID: status}, sign)


@pytest.mark.parametrize("name", ["test_f", "::test_f", "test_f[1]", "./test_a.py::test_f"])
def test_a_test_that_is_told_without_its_file_must_tell_all_the_same(name):
    assert reports("0100").judge({name: "passed"}, everything) == ({name: "failed"}, FORCED)


def test_the_reference_is_believed_where_another_value_was_equal_too():
    seen = reports("1100", record={"reference": True})
    assert seen.judge(PASSED, everything) == (PASSED, None)
    assert seen.report(PASSED)["odd"] == [("/tests/test_a.py", 1, 0)]


def test_tests_that_need_not_pass_make_no_signs():
    assert reports("1111").judge(PASSED, lambda test: False)[1] is None


def test_people_are_told_what_was_expected_where_nothing_or_a_decoy_was_equal():
    assert reports("0100").wants() == []
    assert reports("0000").wants() == ["/tests/test_a.py:1 expects 3"]
    assert reports("0010").wants() == ["/tests/test_a.py:1 expects 3, and the code gave a decoy"]


def test_a_report_names_sites_by_their_place():
    report = reports("0100").report(PASSED)
    assert report["tests"] == {ID: [("/tests/test_a.py", 1, 0)]}
    assert (report["odd"], report["unverified"]) == ([], [])


def test_what_is_told_of_another_set_is_no_evidence():
    seen = reports()
    seen.key.answer(Choice(NODES, 0))
    seen.read([{"kind": "start", "id": ID}, {"kind": "site", "site": FIRST, "set": FIRST + 1, "equal": "1000"}])
    assert seen.judge(PASSED, everything)[0] == {ID: "failed"}
