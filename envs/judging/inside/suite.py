"""One call of pytest or unittest: a process for the tests, what it is handed, and what follows from what it tells.

The process is forked before this one reads the tests, and is handed compiled modules in which each expected value
stands among decoys (see `sites`). It tells of each test, and of what was equal at each site. Which value is the
expected one this process alone knows.
"""

import ast
import collections
import json
import marshal
import os
import random
import re
import sys
import tempfile
import traceback
import warnings

import reports
import sites
from decoys import Decoys, looked_for, vocabulary
from evidence import Evidence
from key import Key
from node_ids import expects_failure, failing_rows, is_id
from processes import (
    HERE,
    TESTS,
    become_judged,
    find,
    judged_processes,
    kill_judged,
    listen,
    open_folders,
    open_tree,
    status_of,
    within,
)
from reporter import Modules, rewrite
from writable import answerer, ask

REPORT = "/logs/verifier/watched.json"
RECORD = HERE + "/record.json"
"""What `tasks check` saw of the reference, one entry for each call: see `Evidence.report`."""
WANTS = 5
"""How many sites where nothing was equal are told of to people."""
_BY_ID = re.compile(r"nodeid|callspec|\.originalname|item\.name|node\.name|request\.node")
"""How code speaks of tests by their ids."""


def lists():
    """Return what tests.json says."""
    return read_json(TESTS + "/tests.json", {})


def read_json(path, other):
    """Return what a file of ours says, `other` where there is none."""
    if not os.path.isfile(path):
        return other
    with open(path) as file:
        return json.loads(file.read() or "null") or other


class Suite:
    """One call of a test runner by `test.sh`.

    args: its arguments. here: whether the current directory is on the import path, as with `python -m`."""

    unittest = False

    def __init__(self, args, here):
        self.args, self.reports = reports.split(args)
        self.root = os.getcwd()
        added = os.environ.get("JUDGED_PYTHONPATH", "").split(":")
        self.path = ([self.root] if here else []) + [part for part in added if part]
        self.listed, self.wanted, self.files, self.sources, self.trees = [], [], [], {}, {}
        self.whole_functions, self.exact, self.record = False, None, {}
        self.key, self.outcome = Key(), {}
        self.evidence = Evidence(self.key)

    def run(self):
        open_tree()
        self.load()
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        folders = {os.path.dirname(file) for file in files if file}
        if any(folder == self.root or within(folder, self.root) for folder in folders):
            return self.report({}, "the test runner is part of what is judged")
        run = self.fork()
        statuses, problem, cheat = self.judge(run)
        if cheat:  # what was reported is worth nothing
            statuses = dict.fromkeys(statuses, "failed")
        reports.write(self.reports, dict(self.outcome, **statuses), run["status"] or int(problem is not None), cheat)
        return self.report(statuses, problem, run["status"], cheat)

    def read(self):
        """Read the tests, and what is listed of them. The process that runs them was forked before."""
        listed = lists()
        self.wanted = listed.get("FAIL_TO_PASS", [])
        self.listed = self.wanted + listed.get("PASS_TO_PASS", [])
        self.whole_functions = bool(listed.get("FUNCTIONS"))
        self.exact = listed.get("EXACT")
        records = read_json(RECORD, [])
        calls = len(read_json(REPORT, []))
        self.record = records[calls] if calls < len(records) else {}
        self.files = self.test_files()
        for path in self.files:
            with open(path, "rb") as file:
                self.sources[path] = file.read()
            try:
                self.trees[path] = ast.parse(self.sources[path], path)
            except (SyntaxError, ValueError) as error:
                self.trees[path] = str(error)

    def load(self):
        """Import the runner, before any judged code and from the image alone."""
        raise NotImplementedError  # abstract: each runner has its own

    def execute(self, modules, pipe):
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
        found = {"tests": statuses, "problem": problem, "cheat": cheat, "listed": bool(self.listed)}
        runs.append(dict(found, evidence=self.evidence.report(statuses)))
        try:
            with open(REPORT, "w") as file:
                json.dump(runs, file)
        except OSError as error:
            print("the report can't be written: %s" % error)
        if problem is not None:
            for line in self.evidence.wants()[:WANTS]:
                print("verifier: %s" % line)
            print("verifier: %s" % problem)
            return status or 1
        return 0

    # The tests

    def functions(self, path):
        """Return the tests of a module, {name: syntax}."""
        tree = self.trees[path]
        return {} if isinstance(tree, str) else dict(sites.tests(tree))

    def prepare(self):
        """Let a listed suite read its tree, and other tests add files to it. Nobody may read the tests themselves,
        unless the list says that they read their own source."""
        if self.listed:
            odd = "( -perm /022 -o ! -perm -444 -o -type d ! -perm -555 ) -exec chmod u+rwX,go+rX,go-w {} +"
            find(self.root, "! -type l " + odd)
        open_folders(self.root, self.files)
        for path in [] if lists().get("READABLE") else self.files:
            try:
                os.chmod(path, 0o600)
            except OSError:
                pass  # not root's: it lies in the image

    def planted(self):
        """Put what the tests expect among decoys. Yield what is handed on: the program, then the modules of `files`."""
        yield marshal.dumps(self.program())
        trees = [tree for tree in self.trees.values() if not isinstance(tree, str)]
        decoys = Decoys(random.SystemRandom(), vocabulary(trees), looked_for(trees))
        configuring = [text.decode("utf-8", "replace") for text in self.neighbours()]
        spoken = {name for text in configuring for name in re.findall(r"[A-Za-z_]\w*", text)}
        renaming = not any("[" in arg or arg.startswith("-k") for arg in self.args)
        renaming = renaming and not any(_BY_ID.search(text) for text in configuring)
        mentioned = {path: set(re.findall(rb"[A-Za-z_]\w*", source)) for path, source in self.sources.items()}
        common = collections.Counter(name for names in mentioned.values() for name in names)
        for path in self.files:
            shared = spoken | {name.decode() for name in mentioned[path] if common[name] > 1}
            yield self.module(path, decoys, shared, renaming)

    def module(self, path, decoys, shared, renaming):
        """Return a module as it is handed on; its error where it is no Python."""
        tree, source = self.trees[path], self.sources[path]
        if isinstance(tree, str):
            return marshal.dumps(tree)
        try:
            renaming = renaming and not _BY_ID.search(source.decode("utf-8", "replace"))
            sites.plant(path, tree, self.key, decoys, shared, renaming, self.spared(path))
            return self.compiled(path, tree)
        except Exception as error:  # ours: the tests are judged as they are
            print("verifier: no decoys in %s: %r" % (path, error))
            self.key.forget(path)
            return self.compiled(path, ast.parse(source, path))

    def compiled(self, path, tree):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rewrite(tree, self.sources[path])
            return marshal.dumps(compile(tree, path, "exec", dont_inherit=True))

    def neighbours(self):
        """Yield the sources of what configures the tests."""
        folders = {self.root}
        for path in self.files:
            while len(path) > 1 and path != self.root:
                path = os.path.dirname(path)
                folders.add(path)
        for folder in folders:
            try:
                with open(folder + "/conftest.py", "rb") as file:
                    yield file.read()
            except OSError:
                pass

    def spared(self, path):
        """Return the tests of a module that must not pass, and so stay as they are."""
        failing = {name.split("[")[0] for name, what in (self.exact or {}).items() if what != "passed"}
        return {name for name in self.functions(path) if any(is_id(test, path, name) for test in failing)}

    # The run

    def fork(self):
        """Run the tests in a child. Returns what it told, and its exit status."""
        reader, writer = os.pipe()
        waiting, ready = os.pipe()
        answered, answers = os.pipe()
        file = tempfile.TemporaryFile(dir=HERE)
        before = judged_processes()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                for number in (reader, ready, answers):
                    os.close(number)
                self.child(waiting, file.fileno(), writer, answered)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(99)
        for number in (writer, waiting, answered):
            os.close(number)
        self.hand_over(ready, file)
        messages, waited = listen(reader, child, None, before, answerer(answers, self.root))
        os.close(answers)
        kill_judged(before)
        return {"messages": messages, "status": status_of(waited)}

    def hand_over(self, ready, file):
        """Read the tests and give the child what it runs of them. Nothing here waits for it."""
        self.read()
        self.prepare()
        try:
            os.write(ready, json.dumps(self.files).encode() + b"\n")
            for code in self.planted():
                file.write(code)
                file.flush()
                os.write(ready, b"%d\n" % len(code))
        except BrokenPipeError:
            pass  # the child has ended already
        file.close()
        os.close(ready)

    def program(self):
        """Return the compiled program that runs the tests; None where there is none."""
        return None

    def child(self, waiting, file, writer, answered):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        become_judged()
        ask(writer, answered, self.root)
        sys.path[:] = [part for part in sys.path if part != HERE and not within(part, self.root)]
        for name, module in list(sys.modules.items()):
            if name != "__main__" and (getattr(module, "__file__", None) or "").startswith(HERE + "/"):
                del sys.modules[name]  # what is judged may have modules of these names
        reporter, code = self.execute(Modules(waiting, file), writer)
        reporter.end(code)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    # The verdict

    def judge(self, run):
        """Return (status per test, why they aren't enough or None, the sign of cheating in that or None)."""
        self.evidence = Evidence(self.key, self.record)
        self.evidence.read(run["messages"])
        seen, titles = {}, {}
        errors = set()
        skipped_by_test = set()
        finish = end = None
        for message in run["messages"]:
            kind = message.get("kind")
            if kind == "test":
                name = str(message.get("id"))
                seen.setdefault(name, []).append(str(message.get("outcome")))
                titles.setdefault(str(message.get("title")), set()).add(name)
                if message.get("error"):
                    errors.add(name)
                if message.get("outcome") == "skipped" and self.may_skip(name, message.get("where")):
                    skipped_by_test.add(name)
            elif kind == "finish":
                finish = message.get("status")
            elif kind == "end":
                end = message
        outcome = {name: outcomes[0] if len(outcomes) == 1 else "other" for name, outcomes in seen.items()}
        outcome, signs = self.evidence.judge(outcome, self.is_demanded)
        self.outcome = outcome
        statuses = {name: self.found(name, outcome, titles) for name in self.listed} if self.listed else dict(outcome)
        if finish is None or end is None or run["status"] != end.get("status"):
            problem = "the tests did not come to their end (exit status %d)" % run["status"]
            return statuses, problem, "ended its tests early"
        if end.get("tampered"):
            problem = "the judged code replaced %s" % ", ".join(end["tampered"][:5])
            return statuses, problem, "changed what tests rely on"
        if self.listed:
            if self.exact is not None:
                statuses.update(self.exactly(outcome, errors))
            failed = [name for name, what in statuses.items() if what != "passed"]
        elif self.record.get("tests"):
            demanded = self.record["tests"]
            statuses.update(dict.fromkeys(set(demanded) - set(statuses), "missing"))
            failed = sorted(name for name in demanded if statuses[name] != "passed")
        else:
            failed = [n for n, what in outcome.items() if what != "passed" and n not in skipped_by_test]
            skipped = collections.Counter(n.split("[")[0] for n in failed if outcome[n] == "skipped")
            failed = [
                n
                for n in failed
                if outcome[n] != "skipped" or not (self.may_fail(n) or skipped[n.split("[")[0]] <= self.failing_rows(n))
            ]
            unseen = self.unseen(outcome)
            statuses.update(dict.fromkeys(unseen, "missing"))
            failed += unseen
            if not failed and ("passed" not in outcome.values() or finish != 0):
                return statuses, "no test passed (the runner ended with %s)" % finish, None
        if failed:
            problem = "%d tests not seen to pass: %s" % (len(failed), ", ".join(failed[:5]))
            return statuses, problem, signs[0] if signs else None
        return statuses, None, None

    def is_demanded(self, test):
        """Return whether a test must pass."""
        if self.record.get("tests") and not self.listed:
            return test in self.record["tests"]
        if not self.listed or test in self.listed:
            return True
        base = test.split("[")[0]
        cut = any("[" in name and not name.endswith("]") and test.startswith(name) for name in self.listed)
        return cut or (self.whole_functions and base in self.listed) or (self.unittest and "::" in test)

    def found(self, name, outcome, titles):
        """Return the status of a listed test.

        An id that was cut at a blank stands for all that begin so, and a title, which unittest prints in place of
        a name, for all that have it.
        """
        if self.unittest and "::" not in name:
            ended = {outcome[test] for test in titles.get(name, ())}
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
        node = self.function(name)
        return node is not None and any(expects_failure(decorator) for decorator in node.decorator_list)

    def failing_rows(self, name):
        """Return how many rows of a parametrised test have such a mark."""
        node = self.function(name)
        return 0 if node is None else sum(map(failing_rows, node.decorator_list))

    def function(self, test):
        """Return the syntax of a test; None where it isn't found."""
        name = test.split("[")[0]
        for path in self.files:
            for found, node in self.functions(path).items():
                if is_id(name, path, found):
                    return node
        return None

    def may_skip(self, name, where):
        """Return whether a test that is said to have been skipped speaks of that, or what it shares does."""
        tree = self.trees.get(where) if isinstance(where, str) else None
        if tree is None or isinstance(tree, str):
            return False
        base = name.split("[")[0]
        others = {id(node) for found, node in self.functions(where).items() if not is_id(base, where, found)}
        return sites.speaks_of_skipping(tree, others)

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
