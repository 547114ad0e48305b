"""Inside the process that runs the tests: what it is given to import, and what is told of each test.

The modules come compiled, with expected values among decoys: this process never had their sources.

A test is told of under a node id as pytest has it (`file::Class::name`), also where unittest runs it.
"""

import importlib.machinery
import importlib.util
import json
import marshal
import os
import site
import sys

from chosen import SETTINGS
from probe import PROBE, Probe, Want, writer

# What tests rely on, as it was before judged code was loaded.
_TRUSTED = {
    "time": ("time", "monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns", "perf_counter_ns"),
    "builtins": None,
    "unittest.case.TestCase": None,
    "unittest.case._AssertRaisesContext": None,
    "unittest.case._AssertWarnsContext": None,
}
_PYTEST = {
    "_pytest.python": ("Function", "Module"),
    "_pytest.python.Function": None,
    "_pytest.reports": ("TestReport",),
    "_pytest.reports.TestReport": None,
    "_pytest.runner": None,
    "pytest": ("approx", "deprecated_call", "fail", "raises", "skip", "warns", "xfail"),
    "_pytest.python_api.RaisesContext": None,
    "_pytest.raises.RaisesExc": None,
    "_pytest.recwarn.WarningsChecker": None,
}
_UNITTEST = {
    "unittest.result.TestResult": None,
    "unittest.runner.TextTestRunner": None,
    "unittest.suite.TestSuite": None,
}


class Reporter:
    """What hands the runner the sources of the tests, and hands on what it reports. It is in the child.

    trusted: names beside `_TRUSTED` that must be what they were, as there."""

    def __init__(self, call, modules, pipe, trusted):
        self.call, self.pipe, self.probe = call, pipe, Probe(writer(pipe))
        self.finder = Finder(modules, self.probe)
        self._write, self._dumps, self._names, self._before = os.write, json.dumps, dict(_TRUSTED, **trusted), {}

    def begin(self):
        """Note what tests rely on. Called before judged code is loaded."""
        # What lies in the tree can't pass itself off as a part of the runner.
        add_path(self.call.path)
        self._before = trusted(self._names)
        site.USER_BASE = site.USER_SITE = None  # root's
        user = site.getusersitepackages()
        if os.path.isdir(user):  # where judged code's `pip install` puts what it installs
            site.addsitedir(user)

    def begins(self, node_id):
        """Tell that a test has begun, whose sites tell from now on."""
        self.probe.begin()
        self.send(kind="start", id=node_id)

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
            data = data[self._write(self.pipe, data) :]


class PytestReporter(Reporter):
    """A plugin of pytest."""

    def __init__(self, call, modules, pipe):
        Reporter.__init__(self, call, modules, pipe, _PYTEST)
        self.outcomes = {}

    def pytest_load_initial_conftests(self, early_config):
        self.send(kind="settings", **choice(early_config))
        self.begin()  # plugins are loaded by now

    def pytest_configure(self, config):
        # pytest-xdist's own processes could be given no sources.
        if getattr(config.option, "dist", "no") != "no":
            config.option.dist, config.option.tx = "no", []

    def pytest_sessionstart(self):
        sys.meta_path.insert(0, self.finder)

    def pytest_make_parametrize_id(self, config, val, argname):
        return val.id() if type(val) is Want else None

    def pytest_runtest_logstart(self, nodeid, location):
        self.begins(nodeid)

    def pytest_runtest_logreport(self, report):
        outcomes = self.outcomes.setdefault(report.nodeid, [])
        if type(report).__name__.lower() == "subtestreport" and report.outcome == "passed":
            return  # a part of a test, which is reported too
        outcomes.append(report.outcome)
        where = report.longrepr[0] if report.skipped and isinstance(report.longrepr, tuple) else None
        if report.when == "teardown":
            good = outcomes == ["passed"] * 3 and not hasattr(report, "wasxfail")
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


def add_path(parts):
    """Add folders to the import path, behind the standard library and before what is installed."""
    at = next((i for i, part in enumerate(sys.path) if part.endswith("-packages")), len(sys.path))
    sys.path[at:at] = [part for part in parts if part not in sys.path]


def choice(config):
    """Return what says which tests are run: whether options do, as `-m` does, and the settings by their names. Asked
    before judged code is loaded."""
    options = vars(config.known_args_namespace)
    names = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
    settings = {name: [str(one) for one in config.getini(name)] for name in SETTINGS}
    return dict(settings, select=any(options.get(name) for name in names))


class UnittestReporter(Reporter):
    """A listener to unittest, whoever runs it: each result object calls TestResult's own methods."""

    def __init__(self, call, modules, pipe):
        Reporter.__init__(self, call, modules, pipe, _UNITTEST)
        self._outcomes = []

    def install(self):
        """Listen to unittest from now on. Called before judged code is loaded."""
        import unittest  # not where pytest runs the tests, which may do without

        result, runner = unittest.TestResult, unittest.TextTestRunner
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
        self._before_each(result, "startTest", self._started)
        self._before_each(result, "stopTest", self._ended)
        run = runner.run

        def finish(runner, test):
            found = run(runner, test)
            self.finish(int(not found.wasSuccessful()))
            return found

        runner.run = finish
        self.begin()
        sys.meta_path.insert(0, self.finder)

    @staticmethod
    def _before_each(kind, name, told):
        method = getattr(kind, name)

        def wrapper(*args, **kwargs):
            told(*args)
            return method(*args, **kwargs)

        setattr(kind, name, wrapper)

    def _started(self, result, test):
        self._outcomes.clear()
        self.begins(self._node_id(test))

    def _subtest(self, result, test, subtest, error):
        if error is not None:
            self._outcomes.append("failed")

    def _ended(self, result, test):
        outcomes = set(self._outcomes)
        good = self._outcomes == ["passed"]
        outcome = "passed" if good else "failed" if "failed" in outcomes or not outcomes else "skipped"
        self.send(kind="test", id=self._node_id(test), title=self._title(test), outcome=outcome)

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
    """An importer of the test modules, whose files can't be read, from compiled code.

    modules: `Modules`. probe: what they call."""

    def __init__(self, modules, probe):
        self.modules, self.probe, self._paths = modules, probe, frozenset(modules.paths)

    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or os.path.realpath(spec.origin) not in self._paths:
            return None
        return importlib.util.spec_from_file_location(
            name, spec.origin, loader=self, submodule_search_locations=spec.submodule_search_locations
        )

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        setattr(module, PROBE, self.probe)
        exec(self.modules.code(os.path.realpath(module.__spec__.origin)), module.__dict__)

    def get_source(self, name):
        return None

    def get_data(self, path):
        with open(path, "rb") as file:  # what lies beside a module
            return file.read()


class Modules:
    """The compiled modules that root's process hands over, one after the other.

    ready: a pipe that tells of all paths, and then of the size of each that is in `file`: first the program's."""

    def __init__(self, ready, file):
        self._ready, self._file, self._places = ready, file, []
        self.paths = json.loads(self._line().decode())

    def code(self, path):
        """Return a module's code; the program's where path is None. Raises SyntaxError where it has none."""
        number = 0 if path is None else 1 + self.paths.index(path)
        while len(self._places) <= number:
            start = sum(self._places[-1]) if self._places else 0
            self._places.append((start, int(self._line())))
        start, size = self._places[number]
        found = marshal.loads(os.pread(self._file, size, start))
        if isinstance(found, str):
            raise SyntaxError(found)
        return found

    def _line(self):
        data = b""
        while not data.endswith(b"\n"):
            more = os.read(self._ready, 1)
            if not more:
                raise EOFError("the verifier has ended")
            data += more
        return data


def trusted(names):
    """Return what tests rely on: {dotted name: object}."""
    found = {}
    for name, attributes in names.items():
        module, _, kind = name.rpartition(".")
        module, kind = (module, kind) if kind.lstrip("_")[:1].isupper() else (name, "")
        holder = sys.modules.get(module)
        holder = getattr(holder, kind, None) if kind and holder is not None else holder
        for attribute, value in list(vars(holder).items()) if holder is not None else ():
            if callable(value) and (attributes is None or attribute in attributes):
                found["%s.%s" % (name, attribute)] = value
    return found


def rewrite(tree, source):
    """Make asserts explain themselves, as pytest does."""
    try:
        from _pytest.assertion.rewrite import rewrite_asserts

        rewrite_asserts(tree, source)
    except (ImportError, TypeError):
        pass  # an old pytest: they explain nothing, and fail all the same
