"""One call of pytest or unittest: the tests as they are, the inverted-assertion tests, and what follows from both."""

import ast
import json
import os
import random
import sys
import traceback
import types

import inverted
from processes import (
    HERE,
    TESTS,
    become_judged,
    find,
    judged_processes,
    kill_judged,
    listen,
    open_tree,
    status_of,
    within,
)
from reporter import PytestReporter, UnittestReporter

REPORT = "/logs/verifier/watched.json"
INVERTED = 8
_REPORTING = ("--junit", "--ctrf", "--json-report", "--html", "--cov", "--report-log", "-x", "--exitfirst", "--maxfail")
_SELECTING = ("-k", "-m", "--deselect", "--lf", "--last-failed", "--ignore")


def unittest_files():
    """Return the files of a listed suite that unittest runs; none where pytest does."""
    return lists().get("UNITTEST", [])


def lists():
    """Return what tests.json says."""
    if not os.path.isfile(TESTS + "/tests.json"):
        return {}
    with open(TESTS + "/tests.json") as file:
        return json.load(file)


class Suite:
    """One call of a test runner by `test.sh`.

    args: its arguments. here: whether the current directory is on the import path, as with `python -m`."""

    unittest = False
    inverted_s = 60.0

    def __init__(self, args, here):
        self.args = args
        self.root = os.getcwd()
        added = os.environ.get("JUDGED_PYTHONPATH", "").split(":")
        self.path = ([self.root] if here else []) + [part for part in added if part]
        listed = lists()
        self.wanted = listed.get("FAIL_TO_PASS", [])
        self.listed = self.wanted + listed.get("PASS_TO_PASS", [])
        self.whole_functions = bool(listed.get("FUNCTIONS"))
        self.exact = listed.get("EXACT")
        self.files = self.test_files()
        self.sources = {}
        for path in self.files:
            with open(path, "rb") as file:
                self.sources[path] = file.read()

    def run(self):
        open_tree()
        self.prepare()
        self.load()
        if any(within(getattr(module, "__file__", None), self.root) for module in list(sys.modules.values())):
            return self.report({}, "the test runner is part of what is judged")
        chosen = self.choose()
        order = [False, True] if chosen else [False]
        random.SystemRandom().shuffle(order)
        runs = {altered: self.fork(chosen if altered else None) for altered in order}
        real = runs[False]
        statuses, problem, cheat = self.judge(real)
        if problem is None and chosen:
            problem = self.judge_inverted(runs[True])
            cheat = problem and "forced its tests"
        if cheat:  # what was reported is worth nothing
            statuses = dict.fromkeys(statuses, "failed")
        return self.report(statuses, problem, real["status"], cheat)

    def load(self):
        """Import the runner, before any judged code and from the image alone."""
        raise NotImplementedError  # abstract: each runner has its own

    def execute(self, writer, chosen, canary):
        """Run the tests, in the child. Return the reporter and the exit status."""
        raise NotImplementedError  # abstract: each runner has its own

    def report(self, statuses, problem, status=1, cheat=None):
        """Write down what was seen, for root's eyes. Returns the exit status for `test.sh`."""
        runs = []
        try:
            with open(REPORT) as file:
                runs = json.loads(file.read() or "[]")
        except (OSError, ValueError):
            pass
        runs.append({"tests": statuses, "problem": problem, "cheat": cheat})
        try:
            with open(REPORT, "w") as file:
                json.dump(runs, file)
        except OSError as error:
            print("the report can't be written: %s" % error)
        if problem is not None:
            print("verifier: %s" % problem)
            return status or 1
        return 0

    # The tests

    def functions(self, path):
        """Return the tests of a module, {name: syntax}."""
        try:
            return dict(inverted.functions(ast.parse(self.sources[path])))
        except (SyntaxError, ValueError):
            return {}

    def choose(self):
        """Return the tests whose assertions are inverted: {file: names}."""
        known = [(path, name) for path in self.files for name in self.functions(path)]
        if self.wanted:
            ids = {test.split("[")[0] for test in self.wanted}
            known = [(path, name) for path, name in known if any(is_id(test, path, name) for test in ids)] or known
        chance = random.SystemRandom()
        chosen = {}
        for path, name in chance.sample(known, min(INVERTED, len(known))):
            chosen.setdefault(path, []).append(name)
        return chosen

    def prepare(self):
        """Let a listed suite read its tree, and other tests add files to it. Nobody may read the tests themselves,
        unless the list says that they read their own source."""
        if self.listed:
            odd = "( -perm /022 -o ! -perm -444 -o -type d ! -perm -555 ) -exec chmod u+rwX,go+rX,go-w {} +"
            find(self.root, "! -type l " + odd)
        for path in [] if lists().get("READABLE") else self.files:
            try:
                os.chmod(path, 0o600)
            except OSError:
                pass  # not root's: it lies in the image

    # The two runs

    def fork(self, chosen):
        """Run the tests in a child. chosen: None, or the tests that run instead with inverted assertions."""
        canary = "test_" + "".join(random.SystemRandom().choice("abcdefghijklmnopqrstuvwxyz") for _ in range(12))
        reader, writer = os.pipe()
        before = judged_processes()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                self.child(chosen, canary, writer)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(99)
        os.close(writer)
        messages, waited = listen(reader, child, self.inverted_s if chosen else None, before)
        kill_judged(before)
        return {"messages": messages, "status": status_of(waited), "canary": canary}

    def child(self, chosen, canary, writer):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if chosen:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        become_judged()
        sys.path[:] = [part for part in sys.path if part != HERE and not within(part, self.root)]
        reporter, code = self.execute(writer, chosen, canary)
        reporter.end(code)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    # The verdict

    def judge(self, run):
        """Return (status per test, why they aren't enough or None, the sign of cheating in that or None)."""
        seen, titles = {}, {}
        errors = set()
        skipped_by_test = set()
        finish = end = None
        for message in run["messages"]:
            kind = message.get("kind")
            if kind == "test":
                seen.setdefault(str(message.get("id")), []).append(str(message.get("outcome")))
                titles.setdefault(str(message.get("title")), set()).add(str(message.get("outcome")))
                if message.get("error"):
                    errors.add(str(message.get("id")))
                if message.get("outcome") == "skipped" and message.get("where") in self.sources:
                    skipped_by_test.add(str(message.get("id")))
            elif kind == "finish":
                finish = message.get("status")
            elif kind == "end":
                end = message
        outcome = {name: outcomes[0] if len(outcomes) == 1 else "other" for name, outcomes in seen.items()}
        statuses = {name: self.found(name, outcome, titles) for name in self.listed} if self.listed else outcome
        if finish is None or end is None or run["status"] != end.get("status"):
            problem = "the tests did not come to their end (exit status %d)" % run["status"]
            return statuses, problem, "ended its tests early"
        if end.get("tampered"):
            return (
                statuses,
                "the judged code replaced %s" % ", ".join(end["tampered"][:5]),
                "changed what tests rely on",
            )
        if self.listed:
            if self.exact is not None:
                statuses.update(self.exactly(outcome, errors))
            failed = [name for name, what in statuses.items() if what != "passed"]
        else:
            failed = [n for n, what in outcome.items() if what != "passed" and n not in skipped_by_test]
            unseen = self.unseen(outcome)
            statuses.update(dict.fromkeys(unseen, "missing"))
            failed += unseen
            if not failed and ("passed" not in outcome.values() or finish != 0):
                return statuses, "no test passed (the runner ended with %s)" % finish, None
        if failed:
            return statuses, "%d tests not seen to pass: %s" % (len(failed), ", ".join(failed[:5])), None
        return statuses, None, None

    def found(self, name, outcome, titles):
        """Return the status of a listed test.

        An id that was cut at a blank stands for all that begin so, and a title, which unittest prints in place of
        a name, for all that have it.
        """
        if self.unittest and "::" not in name:
            ended = titles.get(name, ())
            return "missing" if not ended else "passed" if ended == {"passed"} else "failed"
        if outcome.get(name) == "skipped" and name not in self.wanted and self.may_fail(name):
            return "passed"
        cut = "[" in name and not name.endswith("]")
        if name in outcome or not (cut or self.whole_functions):
            return outcome.get(name, "missing")
        start = name + (" " if cut else "[")
        cases = [what for test, what in outcome.items() if test.startswith(start)]
        return "missing" if not cases else "passed" if set(cases) == {"passed"} else "failed"

    def may_fail(self, name):
        """Return whether a mark of the test, without a condition, expects it to fail: no code can break it."""
        name = name.split("[")[0]
        for path in self.files:
            for found, node in self.functions(path).items():
                if is_id(name, path, found):
                    return any(expects_failure(decorator) for decorator in node.decorator_list)
        return False

    def exactly(self, outcome, errors):
        """Return the status of tests that must not pass, and of unlisted ones. One that ends as it must has passed."""
        found = dict.fromkeys(self.exact, "missing")
        for name, what in outcome.items():
            if name in self.exact:
                ended = "error" if what == "failed" and name in errors else what
                found[name] = "passed" if ended == self.exact[name] else "failed"
            elif name not in self.listed and what != "skipped":
                found[name] = "other"
        return found

    def judge_inverted(self, run):
        outcomes = {}
        finished = False
        for message in run["messages"]:
            if message.get("kind") == "test":
                outcomes.setdefault(str(message.get("id")), set()).add(message.get("outcome"))
            finished = finished or message.get("kind") == "finish"
        passed = [name for name, seen in outcomes.items() if "passed" in seen]
        if passed:
            return "%s passes whatever it expects" % passed[0]
        canary = [seen for name, seen in outcomes.items() if run["canary"] in name.split("::")]
        if not finished or not canary or any(seen != {"failed"} for seen in canary):
            return "a test that must fail was not seen to fail"
        return None


class Pytest(Suite):
    """One call of pytest."""

    def test_files(self):
        """Return the modules that hold tests, among the arguments."""
        found = []
        for arg in self.args:
            path = os.path.realpath(arg.split("::")[0])
            if os.path.isfile(path) and path.endswith(".py"):
                found.append(path)
            elif os.path.isdir(path) and not arg.startswith("-") and path != self.root:
                for folder, _, names in os.walk(path):
                    found += [os.path.join(folder, name) for name in names if is_test_module(name)]
        return sorted(set(found))

    def load(self):
        import pytest  # noqa: F401 - for the processes that are forked from here

    def execute(self, writer, chosen, canary):
        import pytest

        reporter = PytestReporter(self, writer, chosen, canary)
        args = self.args if chosen is None else self.inverted_args(chosen)
        return reporter, int(pytest.main(["-p", "no:cacheprovider", *args], plugins=[reporter]))

    def inverted_args(self, chosen):
        """Return the same modules and options, without what writes reports or ends early."""
        args = []
        for arg in self.args:
            path = os.path.realpath(arg.split("::")[0])
            if path in self.sources:
                if path in chosen and path not in args:
                    args.append(path)
            elif not arg.startswith(_REPORTING):
                args.append(arg)
        return args

    def unseen(self, outcome):
        """Return the test functions of the given modules that pytest did not report."""
        if any(arg.startswith(_SELECTING) or "::" in arg for arg in self.args):
            return []
        reported = {test.split("[")[0] for test in outcome}
        names = [(path, name) for path in self.files for name in self.functions(path)]
        plain = [(path, name) for path, name in names if "::" not in name or name.split("::")[0].startswith("Test")]
        return [name for path, name in plain if not any(is_id(test, path, name) for test in reported)]


class Unittest(Suite):
    """One call of a script that runs tests by unittest, in its own process; tests.json names their files.

    args: the script and its arguments."""

    unittest = True
    inverted_s = 300.0  # a script may prepare much before its first test

    def __init__(self, args, here):
        Suite.__init__(self, args, here)
        with open(args[0], "rb") as file:
            self.script = file.read()

    def test_files(self):
        paths = [os.path.realpath(path) for path in unittest_files()]
        return [path for path in paths if os.path.isfile(path)]

    def load(self):
        import unittest  # noqa: F401 - for the processes that are forked from here

    def unseen(self, outcome):
        """Return the test methods that no class reported: one may inherit another's."""
        reported = {test.split("::")[-1] for test in outcome}
        names = [name for path in self.files for name in self.functions(path) if "::" in name]
        return [name for name in names if name.split("::")[-1] not in reported]

    def execute(self, writer, chosen, canary):
        reporter = UnittestReporter(self, writer, chosen, canary)
        path = os.path.abspath(self.args[0])
        sys.argv = [self.args[0], *self.args[1:]]
        sys.path.insert(0, os.path.dirname(path))
        reporter.install()
        main = types.ModuleType("__main__")
        main.__file__ = path
        sys.modules["__main__"] = main
        code = 0
        try:
            exec(compile(self.script, path, "exec", dont_inherit=True), main.__dict__)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            code = 1
        if code:  # as where what is judged can't be imported; the tests are missing then
            reporter.finish(code)
        return reporter, code


def expects_failure(decorator):
    """Return whether a decorator is `pytest.mark.xfail`, without a condition or an exception that it expects."""
    if isinstance(decorator, ast.Call):
        if decorator.args or any(keyword.arg not in ("reason", "run") for keyword in decorator.keywords):
            return False
        decorator = decorator.func
    return isinstance(decorator, ast.Attribute) and decorator.attr == "xfail"


def is_id(test, path, name):
    """Return whether a node id without its case is the test `name` of the module at `path`; without a file, of any."""
    if "::" not in test:
        return test == name
    file, _, rest = test.partition("::")
    return rest == name and ("/" + path).endswith(os.path.normpath("/" + file))


def is_test_module(name):
    return name.endswith(".py") and (name.startswith("test") or name.endswith(("_test.py", "_tests.py")))
