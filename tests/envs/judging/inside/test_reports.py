"""Reports of plugins that the image lacks."""

import json

TEST = """\
import pytest

def test_good(): assert True

def test_bad(): assert 0

@pytest.mark.skip
def test_not(): pass
"""


async def test_ctrf_and_json_reports_say_what_pytest_does(judged, tmp_path):
    ctrf, report = tmp_path / "new/ctrf.json", tmp_path / "report.json"
    options = ["--ctrf", str(ctrf), "--json-report", "--json-report-file", str(report)]
    seen = await judged({"test_a.py": TEST}, " ".join(["-m pytest -q", *options]))
    assert seen.status == 1
    results = json.loads(ctrf.read_text())["results"]
    assert {one["name"]: one["status"] for one in results["tests"]} == {
        "test_a.py::test_good": "passed",
        "test_a.py::test_bad": "failed",
        "test_a.py::test_not": "skipped",
    }
    assert {name: results["summary"][name] for name in ("tests", "passed", "failed", "skipped")} == {
        "tests": 3,
        "passed": 1,
        "failed": 1,
        "skipped": 1,
    }
    found = json.loads(report.read_text())
    assert (found["exitcode"], found["summary"]["passed"], found["summary"]["failed"]) == (1, 1, 1)


OWN = """\
def pytest_addoption(parser):
    for name in ("--ctrf", "--json-report-file"):
        parser.addoption(name, default="none")
    parser.addoption("--json-report", action="store_true")
def pytest_sessionfinish(session):
    open(session.config.option.ctrf, "w").write("its own")
"""


async def test_the_plugins_of_the_image_write_their_own_reports(judged, tmp_path):
    """By the names of their packages: their modules have others (`ctrf`, `pytest_jsonreport`)."""
    there = {f"pytest_json_{name}-0.6.1.dist-info/METADATA": "" for name in ("ctrf", "report")}
    seen = await judged({"test_a.py": TEST, "own.py": OWN, **there}, "-m pytest -q -p own --json-report --ctrf c.json")
    assert seen.status == 1, seen.output
    assert (tmp_path / "c.json").read_text() == "its own"
    assert not (tmp_path / ".report.json").exists()
