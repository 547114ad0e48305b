"""Writes the reports of pytest plugins that test.sh may ask for and an image without network may lack.

`--ctrf FILE` as pytest-json-ctrf, `--json-report` and `--json-report-file FILE` as pytest-json-report.
"""

import json
import os
import time

from verifier_hook import loaded

_WORDS = ("passed", "failed", "skipped")


class Reports:
    """A plugin of pytest."""

    def __init__(self):
        self._began, self._tests, self._config = time.time(), {}, None
        there = loaded("installed").installed()
        self._ctrf_lacks, self._json_lacks = ("pytest-json-" + name not in there for name in ("ctrf", "report"))

    def pytest_addoption(self, parser):
        group = parser.getgroup("reports")
        if self._ctrf_lacks:
            group.addoption("--ctrf", default=None, help="write a report in CTRF")
        if self._json_lacks:
            group.addoption("--json-report", action="store_true", default=False, help="write a report in JSON")
            group.addoption("--json-report-file", default=".report.json", help="where to")
            group.addoption("--json-report-indent", type=int, default=None, help="its indentation")

    def pytest_configure(self, config):
        self._config = config

    def pytest_runtest_logreport(self, report):
        test = self._tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0, "text": ""})
        test["seconds"] += report.duration
        if report.outcome != "passed":
            word = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            test["outcome"] = "error" if report.failed and report.when != "call" else word
            test["text"] = str(report.longrepr or "")
        elif hasattr(report, "wasxfail"):
            test["outcome"] = "xpassed"

    def pytest_sessionfinish(self, session, exitstatus):
        if session.config is not self._config:
            return
        option = session.config.option
        if self._ctrf_lacks and getattr(option, "ctrf", None):
            self._write(option.ctrf, self._ctrf())
        if self._json_lacks and getattr(option, "json_report", False):
            self._write(option.json_report_file, self._json(session, exitstatus))

    @staticmethod
    def _write(path, report):
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, exist_ok=True)
        with open(path, "w") as file:
            json.dump(report, file, indent=2)

    def _ctrf(self):
        outcomes = [test["outcome"] for test in self._tests.values()]
        statuses = [outcome if outcome in _WORDS else "failed" for outcome in outcomes]
        counted = {word: statuses.count(word) for word in _WORDS}
        times = {"start": int(self._began * 1000), "stop": int(time.time() * 1000)}
        return {
            "results": {
                "tool": {"name": "pytest"},
                "summary": dict(counted, tests=len(statuses), pending=0, other=0, **times),
                "tests": [
                    {
                        "name": name,
                        "status": status,
                        "duration": int(test["seconds"] * 1000),
                        "file_path": name.split("::")[0],
                        **({"trace": test["text"]} if test["text"] else {}),
                    }
                    for (name, test), status in zip(self._tests.items(), statuses)
                ],
            }
        }

    def _json(self, session, status):
        outcomes = [test["outcome"] for test in self._tests.values()]
        summary = {word: outcomes.count(word) for word in sorted(set(outcomes))}
        return {
            "created": time.time(),
            "duration": time.time() - self._began,
            "exitcode": int(status),
            "root": str(session.config.rootdir),
            "environment": {},
            "summary": dict(summary, total=len(outcomes), collected=session.testscollected),
            "tests": [
                {"nodeid": name, "outcome": test["outcome"], "keywords": [], "call": {"longrepr": test["text"]}}
                for name, test in self._tests.items()
            ],
        }
