"""The required tests: those of the list, else those that the reference passed, else all in the modules."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from envs.judging.reports.runner_reports import RunnerReports


class RequiredTests:
    """The tests that a judgement requires.

    listed: `tests.json` of the task, {} for none. record: the reference's evidence from `tasks check`, {} for nothing.

    reference: whether the reference is judged, before there is a record: tests that it leaves out are not demanded.
    tests: the listed ones. recorded: those that the reference passed, if none are listed. replaced: things that it
    replaced. exact: how each test must end, None if passing is all.
    """

    def __init__(self, listed: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        self._wanted: Sequence[str] = listed.get("FAIL_TO_PASS", [])
        self.tests: Sequence[str] = [*self._wanted, *listed.get("PASS_TO_PASS", [])]
        self._listed = frozenset(self.tests)
        self._cut: dict[str, list[str]] = collections.defaultdict(list)
        for name in self.tests:
            if "[" in name and not name.endswith("]"):
                self._cut[_function(name)].append(name)
        self.exact: Mapping[str, str] | None = listed.get("EXACT")
        self.record = record
        self.reference = bool(record.get("reference"))
        self.recorded: Collection[str] = () if self.tests else record.get("tests", ())
        self.replaced: Collection[str] = record.get("replaced", ())
        self._whole_functions = bool(listed.get("FUNCTIONS"))
        self._titled = bool(listed.get("UNITTEST"))

    def includes(self, test: str) -> bool:
        """Return whether a test must pass."""
        if self.recorded:
            return test in self.recorded
        titled = self._titled and "::" in test
        return not self.tests or titled or not self._listed.isdisjoint(self._names(test))

    def _names(self, test: str) -> Iterator[str]:
        """Yield the names by which a list may mean a test.

        An id that was cut at a blank stands for all ids with this beginning, one with a shortened path for all
        unlisted ones with such a path.
        """
        yield test
        function = _function(test)
        if self._whole_functions:
            yield function
        if test not in self._listed:
            yield _shortened(test)
        yield from (name for name in self._cut.get(function, ()) if test.startswith(f"{name} "))

    def failing(self) -> frozenset[str]:
        """Return the tests that must not pass, without their cases."""
        return frozenset(_function(name) for name, what in (self.exact or {}).items() if what != "passed")

    def statuses(self, outcome: Mapping[str, str], reports: RunnerReports) -> dict[str, str]:
        """Return the status of each listed test. A title stands for all tests that have it."""
        ends: dict[str, set[str]] = collections.defaultdict(set)
        for test, what in outcome.items():
            for name in self._names(test):
                ends[name].add(what)
        found = {name: outcome.get(name, _all(ends[name])) for name in self.tests}
        for name in found.keys() - self._wanted:
            if found[name] == "skipped" and reports.source.may_fail(name):
                found[name] = "passed"
        for title in (name for name in self.tests if self._titled and "::" not in name):
            found[title] = _all(outcome[test] for test in reports.titles.get(title, ()))
        return found if self.exact is None else found | self._exactly(outcome, reports.errors)

    def lost(self, outcome: Mapping[str, str]) -> set[str]:
        """Return the recorded tests that did not run.

        For a case of a test another one may stand, if all of that test passed: rows may be drawn by chance, or come
        from the code's own values.
        """
        fresh: dict[str, list[str]] = collections.defaultdict(list)
        for test, what in outcome.items():
            if "[" in test and test not in self.recorded:
                fresh[_function(test)].append(what)
        lost = set()
        for test in set(self.recorded) - set(outcome):
            others = fresh[_function(test)] if "[" in test else []
            if others and set(others) == {"passed"}:
                others.pop()
            else:
                lost.add(test)
        return lost

    def _exactly(self, outcome: Mapping[str, str], errors: Collection[str]) -> dict[str, str]:
        """Return the status of tests that must not pass, and of unlisted ones. One with its demanded end has passed.

        errors: tests that failed outside of their function."""
        exact = self.exact or {}
        found = dict.fromkeys(exact, "missing")
        for name, what in outcome.items():
            if name in exact:
                ended = "error" if what == "failed" and name in errors else what
                found[name] = "passed" if ended == exact[name] else "failed"
            elif name not in self._listed and what != "skipped":
                found[name] = "other"
        return found


def _function(test: str) -> str:
    """Return the id of a test without its case."""
    return test.partition("[")[0]


def _all(ends: Iterable[str]) -> str:
    """Return the status of several tests together."""
    seen = set(ends)
    return "missing" if not seen else "passed" if seen == {"passed"} else "failed"


def _shortened(test: str) -> str:
    """Return a test's id as SWE-bench lists it in some repositories: of a case that is a path, the last part alone."""
    main, _, case = test.partition("[")
    if not (case.startswith("/") and case.endswith("]")) or case.startswith("//") or "*" in case:
        return test
    return f"{main}[/{case.rpartition('/')[2]}"
