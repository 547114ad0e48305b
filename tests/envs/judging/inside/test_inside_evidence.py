"""What follows from what sites told."""

import ast

import evidence
import pytest
from decoys import Choice
from key import Key

PASSED = {"test_a.py::test_f": "passed"}
NODES = [ast.Constant(value) for value in (7, 3, 5, 1)]


def told(*outcomes, record=None, rare=0):
    """The evidence of one test with one site, where 3 is expected."""
    key = Key()
    site = key.site("/tests/test_a.py", ast.Pass())
    key.answer(Choice(NODES, 1, rare))
    key.asked[site] = [0]
    key.must["/tests/test_a.py", "test_f"] = {site}
    seen = evidence.Evidence(key, record)
    start = {"kind": "start", "id": "test_a.py::test_f"}
    seen.read([start, *({"kind": "site", "site": site, "set": 0, "equal": equal} for equal in outcomes)])
    return seen


@pytest.mark.parametrize(
    "outcomes, rare, status, signs",
    [
        (["0100"], 0, "passed", []),
        (["0000", "0100"], 0, "passed", []),
        (["0100", "1000"], 0, "failed", []),
        (["0110"], 0, "failed", []),
        (["1111"], 0, "failed", [evidence.FORCED]),
        (["0010"], 2, "failed", [evidence.LOOKED_UP]),
        ([], 0, "failed", [evidence.FORCED]),
    ],
)
def test_a_test_passes_by_the_expected_value_alone(outcomes, rare, status, signs):
    found = told(*outcomes, rare=rare).judge({"test_a.py::test_f": "passed"})
    assert found == ({"test_a.py::test_f": status}, signs)


@pytest.mark.parametrize("name", ["test_f", "::test_f", "test_f[1]", "./test_a.py::test_f"])
def test_a_test_that_is_told_without_its_file_must_tell_all_the_same(name):
    assert told("0100").judge({name: "passed"}) == ({name: "failed"}, [evidence.FORCED])


def test_tests_that_need_not_pass_make_no_signs():
    assert told("1111").judge({"test_a.py::test_f": "passed"}, lambda test: False)[1] == []


def test_people_are_told_what_was_expected_where_nothing_was_equal():
    assert told("0000").wants() == ["/tests/test_a.py:0 expects 3"]


def test_a_report_names_sites_by_their_place():
    report = told("0100").report({"test_a.py::test_f": "passed"})
    assert report["tests"] == {"test_a.py::test_f": [0]}
    assert (report["odd"], report["unverified"]) == ([], [])


def test_what_is_told_of_another_set_or_of_none_is_no_evidence():
    assert told("").judge(PASSED) == ({"test_a.py::test_f": "failed"}, ["forced its tests"])
    seen = told()
    seen.key.answer(Choice(NODES, 0, 0))
    seen.read([{"kind": "start", "id": "test_a.py::test_f"}, {"kind": "site", "site": 0, "set": 1, "equal": "1000"}])
    assert seen.judge(PASSED)[0] == {"test_a.py::test_f": "failed"}


def test_each_expected_value_of_which_the_reference_told_must_be_told_of():
    def run(record, *answers):
        key = Key()
        site = key.site("/tests/test_a.py", ast.Pass())
        key.asked[site] = [key.answer(Choice(NODES, i, 0)) for i in range(2)]
        seen = evidence.Evidence(key, record)
        for test, number in zip("ab", answers, strict=True):
            truth = "".join("01"[i == number] for i in range(4))
            seen.read([{"kind": "start", "id": test}, {"kind": "site", "site": site, "set": number, "equal": truth}])
        return seen

    statuses = {"a": "passed", "b": "passed"}
    record = run({}, 0, 1).report(statuses)
    assert record["sets"] == [[0, 1]]
    assert run(record, 0, 1).judge(statuses) == (statuses, [])
    assert run(record, 0, 0).judge(statuses) == ({"a": "failed", "b": "failed"}, ["forced its tests"])
    assert run(record, 0, 0).judge({"a": "passed", "b": "failed"}) == ({"a": "passed", "b": "failed"}, [])
