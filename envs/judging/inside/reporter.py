"""Inside the process that runs the tests: what it is given to import, and what is told of each test.

A test is told of under a node id as pytest has it (`file::Class::name`), also where unittest runs it.
"""

import ast
import importlib.machinery
import importlib.util
import json
import os
import sys

import inverted

# What tests rely on, as it was before judged code was loaded.
_TRUSTED = {
    "time": ("time", "monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns", "perf_counter_ns"),
    "builtins": None,
    "unittest.case.TestCase": None,
}
_PYTEST = {
    "_pytest.python": ("Function", "Module"),
    "_pytest.python.Function": None,
    "_pytest.reports": ("TestReport",),
    "_pytest.reports.TestReport": None,
    "_pytest.runner": None,
}
_UNITTEST = {
    "unittest.result.TestResult": None,
    "unittest.runner.TextTestRunner": None,
    "unittest.suite.TestSuite": None,
}


class Reporter:
    """What hands the runner the sources of the tests, and hands on what it reports. It is in the child.

    trusted: names beside `_TRUSTED` that must be what they were, as there."""

    def __init__(self, call, writer, chosen, canary, trusted):
        self.call, self.writer, self.chosen, self.canary = call, writer, chosen, canary
        self.finder = Finder(call.sources, chosen, canary, call.unittest)
        self._write, self._dumps, self._names, self._before = os.write, json.dumps, dict(_TRUSTED, **trusted), {}

    def begin(self):
        """Note what tests rely on. Called before judged code is loaded."""
        # What lies in the tree can't pass itself off as a part of the runner.
        at = next((i for i, part in enumerate(sys.path) if part.endswith("-packages")), len(sys.path))
        sys.path[at:at] = [part for part in self.call.path if part not in sys.path]
        self._before = trusted(self._names)

    def is_chosen(self, node_id):
        path, _, name = node_id.partition("::")
        name = name.split("[")[0]
        files = [file for file in self.chosen if file.endswith(os.path.normpath("/" + path.lstrip("./")))]
        return self.canary in name.split("::") or any(name in self.chosen[file] for file in files)

    def held(self):
        """Return whether an altered assert held in the test that has just ended: what should have failed did not."""
        held = any(probe.held for probe in self.finder.probes)
        for probe in self.finder.probes:
            probe.held, probe.hit = False, False
        return held

    def finish(self, status):
        """Tell that the tests came to their end."""
        self.send(kind="finish", status=status)

    def end(self, code):
        now = trusted(self._names)
        self.send(
            kind="end",
            status=code,
            tampered=[name for name, value in self._before.items() if now.get(name) is not value],
        )

    def send(self, **message):
        data = (self._dumps(message) + "\n").encode()
        while data:
            data = data[self._write(self.writer, data) :]


class PytestReporter(Reporter):
    """A plugin of pytest."""

    def __init__(self, call, writer, chosen, canary):
        Reporter.__init__(self, call, writer, chosen, canary, _PYTEST)
        self.outcomes = {}

    def pytest_load_initial_conftests(self):
        self.begin()  # plugins are loaded by now

    def pytest_configure(self, config):
        # pytest-xdist's own processes could be given no sources.
        if getattr(config.option, "dist", "no") != "no":
            config.option.dist, config.option.tx = "no", []

    def pytest_sessionstart(self):
        sys.meta_path.insert(0, self.finder)

    def pytest_collection_modifyitems(self, session, config, items):
        if self.chosen:
            config.option.maxfail = 0
            items[:] = [item for item in items if self.is_chosen(item.nodeid)]

    def pytest_runtest_logreport(self, report):
        outcomes = self.outcomes.setdefault(report.nodeid, [])
        outcomes.append(report.outcome)
        where = report.longrepr[0] if report.skipped and isinstance(report.longrepr, tuple) else None
        if report.when == "teardown":
            good = outcomes == ["passed"] * 3 and not hasattr(report, "wasxfail")
            good = self.held() or good
            unexpected = "xfail" in outcomes and "failed" not in outcomes  # an expected failure that passed
            self.send(
                kind="test",
                id=report.nodeid,
                outcome="passed" if good else "skipped" if unexpected or "skipped" in outcomes else "failed",
                error=outcomes[0] == "failed" or outcomes == ["passed", "passed", "failed"],
                where=self.outcomes.pop(report.nodeid + "@", None),
            )
            del self.outcomes[report.nodeid]
        elif hasattr(report, "wasxfail"):
            outcomes.append("xfail")
        elif where is not None:
            self.outcomes[report.nodeid + "@"] = os.path.realpath(str(where))

    def pytest_collectreport(self, report):
        if report.failed:
            self.send(kind="test", id=report.nodeid, outcome="failed", where=None)

    def pytest_sessionfinish(self, session, exitstatus):
        self.finish(int(exitstatus))


class UnittestReporter(Reporter):
    """A listener to unittest, whoever runs it: each result object calls TestResult's own methods."""

    def __init__(self, call, writer, chosen, canary):
        Reporter.__init__(self, call, writer, chosen, canary, _UNITTEST)
        self._outcomes, self._case = [], None

    def install(self):
        """Listen to unittest from now on. Called before judged code is loaded."""
        import unittest  # not where pytest runs the tests, which may do without

        result, runner, suite = unittest.TestResult, unittest.TextTestRunner, unittest.TestSuite
        self._case = unittest.TestCase
        for name, outcome in (
            ("addSuccess", "passed"),
            ("addError", "failed"),
            ("addFailure", "failed"),
            ("addUnexpectedSuccess", "failed"),
            ("addExpectedFailure", "skipped"),
            ("addSkip", "skipped"),
        ):
            self._before_each(result, name, lambda result, *args, outcome=outcome: self._outcomes.append(outcome))
        self._before_each(result, "addSubTest", self._subtest)
        self._before_each(result, "startTest", lambda result, test: self._outcomes.clear())
        self._before_each(result, "stopTest", self._ended)
        run = runner.run

        def finish(runner, test):
            found = run(runner, test)
            self.finish(int(not found.wasSuccessful()))
            return found

        runner.run = finish
        if self.chosen:
            self._before_each(suite, "run", self._choose)
        self.begin()
        sys.meta_path.insert(0, self.finder)

    @staticmethod
    def _before_each(kind, name, told):
        method = getattr(kind, name)

        def wrapper(*args, **kwargs):
            told(*args)
            return method(*args, **kwargs)

        setattr(kind, name, wrapper)

    def _subtest(self, result, test, subtest, error):
        if error is not None:
            self._outcomes.append("failed")

    def _ended(self, result, test):
        outcomes = set(self._outcomes)
        good = self.held() or self._outcomes == ["passed"]
        outcome = "passed" if good else "failed" if "failed" in outcomes or not outcomes else "skipped"
        self.send(kind="test", id=self._node_id(test), title=self._title(test), outcome=outcome)

    def _choose(self, suite, *args):
        suite._tests[:] = [
            test for test in suite._tests if not isinstance(test, self._case) or self.is_chosen(self._node_id(test))
        ]

    def _node_id(self, test):
        function = getattr(test, "_testFunc", None)  # of a FunctionTestCase
        home = function or type(test)
        file = getattr(sys.modules.get(home.__module__), "__file__", None) or home.__module__
        names = [function.__name__] if function else type(test).__qualname__.split(".") + [test._testMethodName]
        return "::".join([os.path.relpath(file, self.call.root)] + names)

    @staticmethod
    def _title(test):
        """Return what unittest prints in place of the name, or beside it: the first line of its docstring."""
        function = getattr(test, "_testFunc", None)
        return function.__name__ if function else str(test.shortDescription() or "")


class Finder:
    """An importer of the test modules from memory; their files can't be read. probes: of the altered ones."""

    def __init__(self, sources, chosen, canary, unittest):
        self.sources, self.chosen, self.canary, self.unittest = sources, chosen, canary, unittest
        self.probes = []

    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or os.path.realpath(spec.origin) not in self.sources:
            return None
        return importlib.util.spec_from_file_location(
            name, spec.origin, loader=self, submodule_search_locations=spec.submodule_search_locations
        )

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        path = os.path.realpath(module.__spec__.origin)
        source = self.sources[path]
        tree = ast.parse(source, module.__spec__.origin)
        if self.chosen and path in self.chosen:
            inverted.invert(tree, set(self.chosen[path]), self.canary, self.unittest)
            self.probes.append(inverted.Probe())
            setattr(module, inverted.PROBE, self.probes[-1])
        rewrite(tree, source)
        exec(compile(tree, module.__spec__.origin, "exec", dont_inherit=True), module.__dict__)

    def get_source(self, name):
        return None


def rewrite(tree, source):
    """Make asserts explain themselves, as pytest does."""
    try:
        from _pytest.assertion.rewrite import rewrite_asserts

        rewrite_asserts(tree, source)
    except (ImportError, TypeError):
        pass  # an old pytest: they explain nothing, and fail all the same


def trusted(names):
    """Return what tests rely on: {dotted name: object}."""
    found = {}
    for name, attributes in names.items():
        module, _, kind = name.rpartition(".") if name.rpartition(".")[2][:1].isupper() else (name, "", "")
        holder = sys.modules.get(module)
        holder = getattr(holder, kind, None) if kind and holder is not None else holder
        for attribute, value in list(vars(holder).items()) if holder is not None else ():
            if callable(value) and (attributes is None or attribute in attributes):
                found["%s.%s" % (name, attribute)] = value
    return found
