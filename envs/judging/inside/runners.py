"""The runners of tests: pytest, and scripts that run them by unittest."""

import ast
import collections
import importlib.util
import json
import os
import sys
import traceback
import types

from chosen import Chosen
from literals import constant
from node_ids import is_id, is_test_module
from probe import PROBE
from processes import HERE, LOGS, TESTS, apart, hand_over, judged_user
from reporter import PytestReporter, UnittestReporter
from suite import Suite, lists
from written import cases_of, lacks

_SELECTING = ("-k", "-m", "--deselect", "--lf", "--last-failed", "--ignore")
_VALUED = ("-c", "--config-file", "--rootdir", "--confcutdir", "--basetemp", "--ignore", "-o", "-p", "-n", "--cov")
"""Options of pytest whose values may be the names of folders, or of files of tests."""
_ASKS = frozenset({"--collect-only", "--co", "--collectonly", "--fixtures", "--funcargs", "--fixtures-per-test"})
_ASKS |= {"--markers", "--setup-plan", "--cache-show"}
"""Options of pytest with which it runs no tests."""
_CACHED = frozenset({"--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--cache-clear"})
_CACHED |= {"--lfnf", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip", "--cache-show"}
"""Options of pytest's cache."""
_NOT_SEARCHED = ("build", "CVS", "_darcs", "dist", "node_modules", "venv")
"""Folders in which pytest looks for no tests, beside those whose names begin with a dot."""
_MOST_FOUND = 500
"""How many modules of tests the working directory may hold for them to be read where nobody named them."""


def unittest_files():
    """Return the files of a listed suite that unittest runs; none where pytest does.

    Another process reads that, since this one must not know what is expected, and ids of tests say it."""
    return json.loads(apart(lambda: json.dumps(lists().get("UNITTEST", []))) or "[]")


def modules_below(folder):
    """Yield the modules of tests below a folder that the agent did not make."""
    for home, folders, names in os.walk(folder):
        folders[:] = [
            one
            for one in folders
            if one not in _NOT_SEARCHED
            and not one.startswith(".")
            and not os.path.exists(os.path.join(home, one, "pyvenv.cfg"))
        ]
        for name in names:
            path = os.path.join(home, name)
            if is_test_module(name) and not is_made(path):
                yield os.path.realpath(path)


def is_hidden(path):
    """Return whether a file is one of the hidden tests, by its place or since test.sh put it there."""
    try:
        return path.startswith(TESTS + "/") or os.lstat(path).st_ctime >= os.stat(HERE + "/began").st_ctime
    except OSError:
        return False


def is_made(path):
    """Return whether a file is the agent's: it was put there when the verifier's sandbox was ready, and before test.sh
    began. So is what judged code made since."""
    try:
        seen = os.lstat(path)
        since, began = os.stat(HERE + "/since").st_ctime, os.stat(HERE + "/began").st_ctime
    except OSError:
        return False
    return seen.st_uid == judged_user() != os.geteuid() or since < seen.st_ctime < began


def closed_below(root, args):
    """Return the folders that this process can't enter below those that pytest is to go through, which would end it."""
    given = [arg for arg in args if os.path.exists(arg.split("::")[0])]
    found = []
    for folder in [one for one in given or [root] if os.path.isdir(one)]:
        for at, names, _ in os.walk(folder):
            names[:] = [name for name in names if name[0] != "." and name != "node_modules"]  # as pytest
            found += [os.path.join(at, name) for name in names]
    return [path for path in found if not os.access(path, os.R_OK | os.X_OK)]


def become_main(args, here):
    """Let this process look as one does in which pytest was started: what `spawn` starts loads its main module, too.

    here: whether it was `python -m pytest`."""
    main = types.ModuleType("__main__")
    try:
        main.__spec__ = importlib.util.find_spec("pytest.__main__")
        main.__file__ = main.__spec__.origin
    except (ImportError, AttributeError, ValueError):
        main.__file__ = sys.modules["pytest"].__file__  # an old pytest is one module
    sys.modules["__main__"] = main
    sys.argv = [main.__file__ if here else os.path.join(os.path.dirname(sys.executable), "pytest"), *args]


class Pytest(Suite):
    """One call of pytest."""

    implied = frozenset()
    """Modules that nobody named, and that pytest may not look into."""

    chosen = Chosen({})
    """What options and settings say of which tests are run."""

    def judge(self, run):
        # What is told first is told before judged code is loaded.
        first = run["messages"][0] if run["messages"] else {}
        self.chosen = Chosen(first if first.get("kind") == "settings" else {})
        return Suite.judge(self, run)

    @property
    def asks(self):
        return bool(_ASKS.intersection(self.args))

    def test_files(self):
        """Return the modules that hold tests: those among the arguments, those in folders among them, and without any
        those of the working directory. What the agent made there is none of the hidden tests."""
        files, folders = set(), []
        for before, arg in zip(["", *self.args], self.args):
            path = os.path.realpath(arg.split("::")[0])
            if arg.startswith("-") or before in _VALUED:
                continue
            if os.path.isfile(path) and path.endswith(".py"):
                files.add(path)
            elif os.path.isdir(path):
                folders.append(path)
        for folder in folders:
            if folder != self.root:
                files.update(modules_below(folder))
        if not files or self.root in folders:
            found = set(modules_below(self.root))
            files.update(path for path in found if is_hidden(path))
            self.implied = frozenset(found - files if len(found) <= _MOST_FOUND else ())
        return sorted(files | self.implied)

    def load(self):
        import pytest  # noqa: F401 - for the processes that are forked from here

        # Reports that plugins write: `--cov-report=xml:/logs/verifier/cov.xml`.
        hand_over([arg[arg.index(LOGS + "/") :] for arg in self.args if LOGS + "/" in arg])

    def execute(self, modules, pipe):
        import pytest

        become_main(self.args, self.path[:1] == [self.root])
        reporter = PytestReporter(self, modules, pipe)
        uncached = (
            ["-o", "cache_dir=/tmp/.pytest_cache"] if _CACHED.intersection(self.args) else ["-p", "no:cacheprovider"]
        )
        args = [*uncached, *("--ignore=" + path for path in closed_below(self.root, self.args)), *self.args]
        code = int(pytest.main(args, plugins=[reporter]))
        if code == 4:  # pytest refused its arguments, before any test
            reporter.finish(code)
        return reporter, code

    def unseen(self, outcome):
        """Return the test functions of the given modules that pytest did not report."""
        if self.chosen.by_options or any(arg.startswith(_SELECTING) for arg in self.args):
            return []
        told = collections.Counter(test.split("[")[0] for test in outcome)
        given = [arg.partition("::")[0] for arg in self.args if not arg.startswith("-")]
        named, whole = {os.path.realpath(arg) for arg in given}, any(os.path.exists(arg) for arg in given)
        files = [path for path in self.written.files if path not in self.implied and not self.needs_absent(path)]
        files = [path for path in files if path in named or self.chosen.takes_file(path, self.root, whole)]
        names = [(path, name, node) for path in files for name, node in self.written.functions(path).items()]
        names = [one for one in names if self.collects(*one) and self.asks_for(*one[:2])]
        if any("[" in arg for arg in self.args):  # some rows alone
            return [name for path, name, _ in names if not any(is_id(test, path, name) for test in told)]
        return [name for path, name, node in names if lacks(told, path, name, node)]

    def asks_for(self, path, name):
        """Return whether pytest was called with the module of a test, or with an id that takes it in."""
        ids = [arg.partition("::") for arg in self.args if "::" in arg]
        ids = [(os.path.realpath(file), rest.split("[")[0]) for file, _, rest in ids]
        mine = [rest for file, rest in ids if file == path]
        whole = any(os.path.realpath(arg) == path or os.path.isdir(arg) for arg in self.args if "::" not in arg)
        return (whole or not mine) or any(name == rest or name.startswith(rest + "::") for rest in mine)

    def collects(self, path, name, node):
        """Return whether this pytest takes a function for a test, by its class and as what it is decorated."""
        if any(getattr(decorator, "id", "") == "classmethod" for decorator in node.decorator_list):
            import pytest

            if getattr(pytest, "version_tuple", (0,)) < (8, 2):
                return False
        return self.chosen.takes_test(name, cases_of(self.written.trees[path]))

    def needs_absent(self, path):
        """Return whether a module is skipped as a whole since it needs a package (`importorskip`) that neither the
        image nor the tree has."""
        tree = self.written.trees[path]
        for node in [] if isinstance(tree, str) else tree.body:
            call = getattr(node, "value", None)
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "importorskip" and call.args:
                name = constant(call.args[0])
                if name and isinstance(name[0], str) and not self.is_there(name[0].split(".")[0]):
                    return True
        return False

    def is_there(self, package):
        """Return whether there is a package of that name, without loading it."""
        for folder in (self.root, *self.path):
            if any(os.path.exists(os.path.join(folder, package + end)) for end in ("", ".py")):
                return True
        try:
            with open(HERE + "/there") as file:
                if {package, package + ".py"} & {os.path.basename(line) for line in file.read().split("\n")}:
                    return True  # the agent has taken it away
        except OSError:
            pass
        try:
            return package in sys.modules or importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):
            return True


class Unittest(Suite):
    """One call of a script that runs tests by unittest, in its own process; tests.json names their files.

    args: the script and its arguments."""

    unittest = True

    def test_files(self):
        paths = [os.path.realpath(path) for path in unittest_files()]
        return [path for path in paths if os.path.isfile(path)]

    def load(self):
        import unittest  # noqa: F401 - for the processes that are forked from here

    def unseen(self, outcome):
        """Return the test methods that no class reported: one may inherit another's."""
        reported = {test.split("::")[-1] for test in outcome}
        names = [name for path in self.written.files for name in self.written.functions(path) if name.count("::") == 1]
        return [name for name in names if name.split("::")[-1] not in reported]

    def program(self):
        path = os.path.realpath(self.args[0])
        if path in self.written.trees:
            return None
        with open(path, "rb") as file:
            return compile(file.read(), os.path.abspath(self.args[0]), "exec", dont_inherit=True)

    def execute(self, modules, pipe):
        reporter = UnittestReporter(self, modules, pipe)
        path = os.path.abspath(self.args[0])
        sys.argv = [self.args[0], *self.args[1:]]
        sys.path.insert(0, os.path.dirname(path))
        reporter.install()
        main = types.ModuleType("__main__")
        main.__file__ = path
        sys.modules["__main__"] = main
        setattr(main, PROBE, reporter.probe)
        own = os.path.realpath(path)
        code = 0
        try:
            exec(modules.code(own if own in modules.paths else None), main.__dict__)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            code = 1
        if code:  # as where what is judged can't be imported; the tests are missing then
            reporter.finish(code)
        return reporter, code
