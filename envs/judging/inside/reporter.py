"""Reports what pytest and unittest run, from their own process to the judge, which is outside of the sandbox.

What is reported may be forged by the code under test. Whoever forges it has to know which of several values a test
expects, and that nothing in the sandbox knows.

Messages are lines of JSON (docs/verifier-protocol.md). Runs on any Python from 3.6.
"""

import atexit
import builtins
import fcntl
import json
import os
import select
import site
import socket
import sys
import time
import types

from verifier_hook import loaded

_PORT = "/verifier/port"
"""Says at which port of loopback the judge listens."""
_WAIT_S = 10.0
_NUMBER = min(300, os.sysconf("SC_OPEN_MAX") // 2)
"""From which number on descriptors are ours: tests may close the low ones, or look which are free."""
__unittest = True
"""Leaves this module's functions out of what unittest shows of a failure."""
_os_write, _dumps, _fstat, _monotonic, _getpid = os.write, json.dumps, os.fstat, time.monotonic, os.getpid

_PYTEST = """\
import runpy
runpy.run_module("pytest", run_name="__main__")
"""
"""The program `pytest`: what it calls has another name in each generation of pytest."""
_PURE = set(dir(builtins)).difference(
    "open print input __import__ __build_class__ exec eval compile breakpoint exit quit help".split()
    + "dir vars locals globals".split()
)
"""Builtins that act on nothing but their arguments: no honest work replaces them."""
_TRUSTED = {
    "time": ("time", "monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns", "perf_counter_ns"),
    "builtins": _PURE,
    "unittest.case.TestCase": None,
    "unittest.case._AssertRaisesContext": None,
    "unittest.case._AssertWarnsContext": None,
}
"""What tests rely on, which is to be as it was before they were loaded. None: all that a module or class has."""
_OF_PYTEST = {
    "_pytest.fixtures.FixtureDef": None,
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
_OF_UNITTEST = {
    "unittest.result.TestResult": None,
    "unittest.runner.TextTestRunner": None,
    "unittest.suite.TestSuite": None,
}


class Line:
    """The way to the judge, from this process and those that it forks."""

    def __init__(self):
        self._number = self._seen = self._loaded = None
        self.began = False
        self._fresh, self._functions = [], []

    def send(self, **message):
        self.write(_dumps(message))

    def write(self, line):
        data = ('{"by": %d, %s\n' % (_getpid(), line[1:])).encode()
        try:
            while data:
                data = data[_os_write(self._open(), data) :]
        except (OSError, ValueError):
            self._number = -1  # the judge is gone: there is nobody to tell

    def begin(self):
        """Report that a runner begins."""
        self.began = True
        self.send(kind="begin")

    def load(self, space):
        """Report that a hidden module is run, by a runner or without one. Without one its process reports how it ends:
        what is ended early, as by `os._exit`, does not. space: of the module."""
        self._fresh.append(space)
        self.send(kind="load")
        if self._loaded is None:
            self._loaded = os.getpid()
            atexit.register(self._unload)

    def keep(self):
        """Note the functions of hidden modules that have been loaded."""
        for space in self._fresh:
            # By their own types: what else stands there may be a proxy that runs code when it is looked at.
            classes = [vars(one) for one in space.values() if issubclass(type(one), type)]
            for holder in [space] + [one for one in classes if one.get("__module__") == space["__name__"]]:
                own = [(name, one) for name, one in holder.items() if type(one) is types.FunctionType]
                self._functions += [(holder, name, one, one.__code__) for name, one in own if one.__globals__ is space]
        del self._fresh[:]

    def replaced(self):
        """Yield the functions of hidden modules that the code under test has replaced."""
        for holder, name, function, code in self._functions:
            if holder.get(name) is not function or function.__code__ is not code:
                yield name

    def _unload(self):
        if os.getpid() == self._loaded and not self.began:
            self.finish(status=0, tampered=[])

    def finish(self, **message):
        """Report an end, and wait until the judge has read all."""
        message["tampered"] += self.replaced()
        self.send(kind="finish", **message)
        if self._number in (None, -1):
            return
        try:
            waiting = select.poll()
            waiting.register(self._number, select.POLLIN)
            if waiting.poll(int(_WAIT_S * 1000)):
                os.read(self._number, 1)
        except (OSError, AttributeError):
            pass  # the tests have closed it, or replaced `select`

    def _open(self):
        if self._number == -1:
            raise OSError("closed")
        if self._number is None or not self._is_ours():
            with open(_PORT) as file:
                made = socket.create_connection(("127.0.0.1", int(file.read())), _WAIT_S)
            made.settimeout(None)
            self._number = fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, _NUMBER)
            made.close()
            self._seen = _fstat(self._number).st_ino
        return self._number

    def _is_ours(self):
        try:
            return _fstat(self._number).st_ino == self._seen
        except OSError:
            return False  # a test has closed it


_COMPARING = loaded("probe")
Probe, Want = _COMPARING.Probe, _COMPARING.Want
_LINE = Line()
_PROBE = Probe(_LINE)


def probe():
    """Return what modules of tests ask."""
    return _PROBE


class Listener:
    """What listens to a runner. names: what tests rely on there."""

    root = os.path.realpath("/proc/self/cwd")
    """Where this process began, a folder that may be gone."""

    def __init__(self, names):
        self._names = dict(_TRUSTED, **names)
        self._before, self._open = {}, False
        builtins.__verifier__ = _PROBE

    def begin(self):
        """Note what tests rely on, before they are loaded."""
        self._before = trusted(self._names)

    def starts(self, node_id):
        if not self._before:
            self.begin()
        self._open = _LINE.began = True
        _LINE.keep()
        _PROBE.begin()
        _LINE.send(kind="start", id=node_id)

    def finish(self, status):
        now = trusted(self._names)
        tampered = [name for name, value in self._before.items() if now.get(name) is not value]
        self._open = False
        _LINE.finish(status=status, tampered=tampered)


class PytestListener(Listener):
    """A plugin of pytest."""

    busy = False
    """Whether a session is under way: what it starts in this process is a part of its tests."""

    def __init__(self):
        Listener.__init__(self, _OF_PYTEST)
        self._outcomes, self._status = {}, None

    def pytest_make_parametrize_id(self, config, val, argname):
        return val.shown if type(val) is Want else None

    def pytest_runtest_logstart(self, nodeid, location):
        self._outcomes.pop(nodeid, None)  # of an attempt that is made again
        self.starts(nodeid)

    def pytest_runtest_logreport(self, report):
        if report.outcome not in ("passed", "failed", "skipped"):
            return  # it is made again, by a plugin
        outcomes = self._outcomes.setdefault(report.nodeid, [])
        if type(report).__name__.lower() == "subtestreport" and report.outcome != "failed":
            return  # a part of a test, which is reported too: it may pass though a part of it is skipped
        outcomes.append(report.outcome)
        where = report.longrepr[0] if report.skipped and isinstance(report.longrepr, tuple) else None
        if report.when == "teardown":
            good = outcomes == ["passed"] * 3 and not hasattr(report, "wasxfail")
            unexpected = "xfail" in outcomes and "failed" not in outcomes  # an expected failure that passed
            _LINE.send(
                kind="test",
                id=report.nodeid,
                outcome="passed" if good else "skipped" if unexpected or "skipped" in outcomes else "failed",
                error=outcomes[0] == "failed" or outcomes == ["passed", "passed", "failed"],
                where=self._outcomes.pop(report.nodeid + "@", None),
            )
            del self._outcomes[report.nodeid]
        elif hasattr(report, "wasxfail"):
            outcomes.append("xfail")
        elif where is not None:
            self._outcomes[report.nodeid + "@"] = os.path.realpath(str(where))

    def pytest_collectreport(self, report):
        if report.failed or report.skipped:
            _LINE.send(kind="test", id=report.nodeid, outcome=report.outcome, collected=False)

    def pytest_sessionstart(self, session):
        PytestListener.busy = True
        _PROBE.asserts = __debug__ or session.config.option.assertmode == "rewrite"
        _LINE.begin()

    def pytest_sessionfinish(self, session, exitstatus):
        self._status = int(exitstatus)
        if hasattr(session.config, "workerinput"):  # pytest-xdist's, which ends here
            self.pytest_unconfigure()

    def pytest_unconfigure(self):
        PytestListener.busy = False
        if self._status is not None:
            self.finish(self._status)


class UnittestListener(Listener):
    """A listener to unittest, whoever runs it. asked: the classes of what is run. Each says what kind of result it is
    given, which may have methods of its own in place of TestResult's."""

    def __init__(self, result, runner, program, *asked):
        Listener.__init__(self, _OF_UNITTEST)
        self._outcomes, self._known = [], set()
        self._told = {
            "addSuccess": self._note("passed"),
            "addError": self._note("failed"),
            "addFailure": self._note("failed"),
            "addUnexpectedSuccess": self._note("failed"),
            "addExpectedFailure": self._note("skipped"),
            "addSkip": self._note("skipped"),
            "addSubTest": self._subtest,
            "startTest": self._started,
            "stopTest": self._ended,
        }
        self._listen(result)
        for kind in asked:
            self._before_each(kind, "run", self._asked)
        self._before_each(program, "parseArgs", lambda *args: _LINE.begin())  # which loads the tests
        run = runner.run

        def and_finish(runner, test):
            found = run(runner, test)
            self.finish(int(not found.wasSuccessful()))
            return found

        runner.run = and_finish
        atexit.register(self._at_exit)

    def _at_exit(self):
        if self._open:  # whoever ran the tests has no runner of unittest's
            self.finish(0)

    def _asked(self, test, result=None, *_, **__):
        if result is not None and not PytestListener.busy:
            self._listen(type(result))

    def _listen(self, kind):
        """Listen to the methods of a kind of result that are its own."""
        if kind not in self._known:
            self._known.add(kind)
            for name, told in self._told.items():
                if hasattr(kind, name) and not hasattr(getattr(kind, name), "told"):
                    self._before_each(kind, name, told)

    def _note(self, outcome):
        return lambda *args, **kwargs: self._outcomes.append(outcome)

    @staticmethod
    def _before_each(kind, name, told):
        method = getattr(kind, name)

        def wrapper(*args, **kwargs):
            told(*args, **kwargs)
            return method(*args, **kwargs)

        wrapper.__name__, wrapper.__doc__, wrapper.told = name, method.__doc__, told
        setattr(kind, name, wrapper)

    def _started(self, result, test):
        node_id = self._node_id(test)
        if node_id is not None:
            self._asked(test, result)
            del self._outcomes[:]
            self.starts(node_id)

    def _subtest(self, result, test, subtest, error):
        if error is not None:
            self._outcomes.append("failed")

    def _ended(self, result, test):
        node_id = self._node_id(test)
        if node_id is not None:
            outcomes = set(self._outcomes)
            failed = "failed" in outcomes or not outcomes
            outcome = "passed" if outcomes == {"passed"} else "failed" if failed else "skipped"
            where = node_id.partition("::")[0] if outcome == "skipped" else None
            _LINE.send(kind="test", id=node_id, title=self._title(test), outcome=outcome, where=where)

    def _node_id(self, test):
        """Return the id of a test; None of what stands for one that another process runs."""
        function = getattr(test, "_testFunc", None)  # of a FunctionTestCase
        method = function.__name__ if function else getattr(test, "_testMethodName", None)
        if method is None:
            return None
        home = function or type(test)
        file = getattr(sys.modules.get(home.__module__), "__file__", None) or home.__module__
        names = [method] if function else type(test).__qualname__.split(".") + [method]
        return "::".join([os.path.relpath(os.path.join(self.root, file), self.root)] + names)

    @staticmethod
    def _title(test):
        """Return what unittest prints in place of the name, or beside it: the first line of its docstring."""
        function = getattr(test, "_testFunc", None)
        return function.__name__ if function else str(test.shortDescription() or "")


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


def listen_to_pytest(module):
    """Have each session of pytest report. module: `_pytest.config`."""
    get_config = module.get_config

    def and_listen(*args, **kwargs):
        config = get_config(*args, **kwargs)
        if PytestListener.busy:
            return config
        listener = PytestListener()
        config.pluginmanager.register(listener, "verifier")
        config.pluginmanager.register(loaded("reports").Reports(), "verifier reports")
        listener.begin()  # the plugins that it always has are loaded
        return config

    module.get_config = and_listen


def listen_to_unittest(module):
    """Have each result object of unittest report. module: `unittest.main`."""
    known = sys.modules
    asked = known["unittest.case"].TestCase, known["unittest.suite"].TestSuite
    UnittestListener(known["unittest.result"].TestResult, module.runner.TextTestRunner, module.TestProgram, *asked)


def share_with(module):
    """Have a virtual environment that is made here find what the image has: there is no network to install it from.
    module: `venv`."""
    make = module.EnvBuilder.post_setup

    def and_share(builder, context):
        make(builder, context)
        places = [folder for folder in sys.path if folder.endswith("-packages")] + [site.getusersitepackages()]
        places = [folder for folder in places if os.path.isdir(folder)]  # Python 3.15 complains of others at each start
        own = os.path.join(context.env_dir, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
        with open("/verifier/verifier_hook.pth") as hook, open(os.path.join(own, "verifier.pth"), "w") as file:
            file.write("".join(folder + "\n" for folder in places) + hook.read())
        for name in ("pip", "pip3"):
            os.symlink("/verifier/bin/pip", os.path.join(context.bin_path, name))
        with open(os.path.join(context.bin_path, "pytest"), "w") as file:
            file.write("#!%s\n%s" % (context.env_exe, _PYTEST))
        os.chmod(file.name, 0o755)

    module.EnvBuilder.post_setup = and_share
    module.EnvBuilder._setup_pip = lambda builder, context: None


def join_virtualenv(module):
    """Have the Pythons of environments that virtualenv makes, as for tox, report. module: `virtualenv.run.session`."""
    run = module.Session.run

    def and_join(session):
        run(session)
        with open("/verifier/verifier_hook.pth") as hook:
            with open(os.path.join(str(session.creator.purelib), "verifier_hook.pth"), "w") as file:
                file.write(hook.read())

    module.Session.run = and_join
