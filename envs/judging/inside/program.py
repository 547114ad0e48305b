"""One call of a Python program that runs tests by itself: a script, code, or a module such as `unittest`."""

import collections
import os
import re
import runpy
import sys
import traceback
import types

from node_ids import is_test_module
from probe import PROBE
from reporter import _PYTEST, PytestReporter, UnittestReporter
from runners import _SELECTING, Unittest, modules_below
from suite import Suite
from written import cases_of, lacks

_CHOOSING = re.compile(
    r"load_tests|addTests?\b|TestSuite\b|loadTestsFrom|defaultTest|SkipTest|[\"']-[km]\b|::|--deselect|--ignore"
)
"""How a program speaks of running some tests of a module alone."""


class Program(Unittest):
    """A program whose calls of `pytest.main` and of unittest are watched, in its own process.

    call: as Python was called. file: where its source is, "" for a module.
    """

    def __init__(self, call, file):
        self.call, self.file, self.source = call, file, ""
        Unittest.__init__(self, call.args, here=call.kind != "script" and not call.safe_path)
        call.args = self.args  # without the reports that root writes

    def read(self):
        if self.file:
            with open(self.file, errors="replace") as file:
                self.source = file.read()
        Suite.read(self)

    def test_files(self):
        """Return the test modules that the program names, on its path: files, folders and modules among its arguments,
        and files in its source."""
        words = [*self.args, *re.findall(r"[\w./-]+", self.source), *self.modules()]
        found = set()
        if self.call.kind == "script":
            words.append(self.file)
            if re.search(r"^\s*(?:async )?def test", self.source, re.MULTILINE):
                found.add(os.path.realpath(self.file))  # by whatever name
        elif self.call.what == "unittest" and all(arg.startswith("-") or arg == "discover" for arg in self.args):
            words.append(self.root)
        for folder in (self.root, *self.path):
            for word in words:
                path = os.path.realpath(os.path.join(folder, word.split("::")[0]))
                if os.path.isfile(path) and path.endswith(".py") and is_test_module(os.path.basename(path)):
                    found.add(path)
                elif os.path.isdir(path) and (word in self.args or word == self.root):
                    found.update(modules_below(path))
        return sorted(found)

    def modules(self):
        """Yield the files of modules among the arguments: of `tests.test_a.Cases` tests/test_a.py, too."""
        for arg in self.args:
            parts = arg.split(".")
            for end in range(1, len(parts) + 1):
                yield "/".join(parts[:end]) + ".py"

    def load(self):
        Unittest.load(self)
        try:
            import pytest  # noqa: F401 - as there
        except ImportError:
            pass

    def unseen(self, outcome):
        """Return the tests of modules that the program names that nothing told of; none where it chooses among them."""
        words = self.args[2:] if self.call.what == "coverage" else self.args
        if _CHOOSING.search(self.source) or any(word.startswith(_SELECTING) or "::" in word for word in words):
            return []
        missing, told = [], collections.Counter(test.split("[")[0] for test in outcome)
        for path in self.written.files:
            source = self.written.sources[path].decode("utf-8", "replace")
            if "load_tests" in source or self.names_part_of(path):
                continue
            cases = cases_of(self.written.trees[path], "TestCase")
            given = is_test_module(os.path.basename(path)) or "__file__" in source
            for name, node in self.written.functions(path).items():
                owner = name.split("::")[0] if "::" in name else ""
                said = self.source + self.call.what + " ".join(self.args)
                wanted = owner in cases and name.count("::") == 1 if owner else given and "pytest" in said
                if wanted and lacks(told, path, name, node):
                    missing.append(name)
        return missing

    def names_part_of(self, path):
        """Return whether an argument names a class or a test of a module: `tests.test_a.Cases`."""
        name = os.path.basename(path)[:-3]
        return any(name in arg.split(".")[:-1] and not os.path.exists(arg) for arg in self.args)

    def judge(self, run):
        kinds = {message.get("kind") for message in run["messages"]}
        if (
            "end" in kinds
            and not kinds & {"start", "test", "finish"}
            and not self.demands.tests
            and (not self.demands.record or self.demands.reference)
        ):
            return {}, "the program ran no test that could be watched", None
        return Suite.judge(self, run)

    def report(self, statuses, problem, status=1, cheat=None):
        return Suite.report(self, statuses, problem, status, cheat) or status

    def program(self):
        if not self.file or os.path.realpath(self.file) in self.written.trees:
            return None
        return compile(self.source, self.name(), "exec", dont_inherit=True)

    def name(self):
        return {"code": "<string>", "stdin": "<stdin>"}.get(self.call.kind) or os.path.abspath(self.file)

    def execute(self, modules, pipe):
        reporter = Both(self, modules, pipe)
        reporter.install()
        code = 0
        try:
            self.start(modules, reporter.probe)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            code = 1
        if code and reporter.ran:
            reporter.finish(code)
        return reporter, code

    def start(self, modules, probe):
        """Run the program in this process, as Python does."""
        call = self.call
        sys.argv = [{"code": "-c", "stdin": "-"}.get(call.kind, call.what), *call.args]
        if call.kind == "module":
            runpy.run_module(call.what, run_name="__main__", alter_sys=True)
            return
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        if call.kind == "script":
            main.__file__ = self.name()
            sys.path[:0] = [] if call.safe_path else [os.path.dirname(os.path.realpath(self.file))]
        setattr(main, PROBE, probe)
        own = os.path.realpath(self.file)
        exec(modules.code(own if own in modules.paths else None), main.__dict__)


class Both(UnittestReporter):
    """Listens to unittest, and to each `pytest.main`. ran: whether a test has begun."""

    ran = False

    def install(self):
        self._names.update(_PYTEST)
        UnittestReporter.install(self)
        config = sys.modules.get("_pytest.config")
        if config is None:
            return
        plugin = PytestReporter(self.call, self.finder.modules, self.pipe)
        plugin.begin = lambda: None  # this one has
        plugin.begins, plugin.finder, plugin.probe = self.begins, self.finder, self.probe
        main = config.main

        def watched(args=None, plugins=None):
            return main(args, [*(plugins or ()), plugin])

        config.main = sys.modules["pytest"].main = watched

    def begins(self, node_id):
        self.ran = True
        UnittestReporter.begins(self, node_id)
