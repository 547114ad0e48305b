"""The reports that root writes in pytest's place."""

import json
from xml.etree import ElementTree

import pytest
import reports

SEEN = {
    "tests/test_a.py::test_one[a.b-<1>]": "passed",
    "tests/test_a.py::T::test_two": "failed",
    "t.py::test_x": "skipped",
}


@pytest.mark.parametrize(
    "args, kept, found",
    [
        ("-q --junitxml=/r.xml a.py", "-q a.py", [("junit", "/r.xml")]),
        ("--junit-xml /r.xml --ctrf /c.json a.py -rA", "a.py -rA", [("junit", "/r.xml"), ("ctrf", "/c.json")]),
        ("--json-report --json-report-file=/j --json-report-indent 2 a.py", "a.py", [("json", "/j")]),
        ("--json-report a.py", "a.py", [("json", ".report.json")]),
        ("--junit-prefix=x --json-report-summary a.py", "a.py", []),
        ("-k junit a.py", "-k junit a.py", []),
    ],
)
def test_what_asks_for_a_report_is_taken_from_pytests_arguments(args, kept, found):
    assert reports.split(args.split()) == (kept.split(), found)


def test_reports_say_how_each_test_was_seen_to_end(tmp_path):
    kinds = ("junit", "ctrf", "json")
    (tmp_path / "junit").symlink_to(tmp_path / "elsewhere")
    reports.write([(kind, str(tmp_path / kind)) for kind in kinds], SEEN, 1)
    assert not (tmp_path / "elsewhere").exists()
    suite = ElementTree.parse(tmp_path / "junit").getroot().find("testsuite")
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "1"]
    cases = {(case.get("classname"), case.get("name")): [child.tag for child in case] for case in suite}
    assert cases == {
        ("tests.test_a", "test_one[a.b-<1>]"): [],
        ("tests.test_a.T", "test_two"): ["failure"],
        ("t", "test_x"): ["skipped"],
    }
    ctrf = json.loads((tmp_path / "ctrf").read_text())["results"]
    assert (ctrf["summary"]["passed"], ctrf["summary"]["failed"], ctrf["summary"]["skipped"]) == (1, 1, 1)
    assert {test["name"]: test["status"] for test in ctrf["tests"]} == SEEN
    found = json.loads((tmp_path / "json").read_text())
    assert (found["exitcode"], found["summary"]) == (
        1,
        {"passed": 1, "failed": 1, "skipped": 1, "total": 3, "collected": 3},
    )
