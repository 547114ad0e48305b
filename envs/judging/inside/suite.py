"""One call of pytest or unittest: a process for the tests, what it is handed, and what it tells.

The process is forked before this one reads the tests, and is handed compiled modules in which each expected value
stands among decoys (see `handed`). It tells of each test, and of what was equal at each site. Which value is the
expected one this process alone knows. What follows from it, see `verdict`.
"""

import gc
import json
import marshal
import os
import re
import sys
import tempfile
import traceback

import compiled
import reports
from demands import Demands
from evidence import Evidence
from handed import handed_on
from key import Key
from processes import (
    HERE,
    TESTS,
    become_judged,
    close_ours,
    find,
    judged_processes,
    kill_judged,
    listen,
    open_folders,
    open_helpers,
    status_of,
    within,
)
from reporter import Modules, add_path
from verdict import Told, verdict
from writable import answerer, ask, open_tree
from written import Written

REPORT = "/logs/verifier/watched.json"
RECORD = HERE + "/record.json"
"""What `tasks check` saw of the reference, one entry for each call: see `Evidence.report`."""
WANTS = 5
"""How many sites where nothing was equal are told of to people."""


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

    args: its arguments. here: whether the current directory is on the import path, as with `python -m`.

    written, demands: its tests, and what is demanded of them; nothing before the child that runs them was forked.
    """

    unittest = False
    """Whether unittest runs the tests."""
    asks = False
    """Whether the runner is asked something, and runs no tests."""

    def __init__(self, args, here):
        self.args, self.reports = reports.split(args)
        self.root = os.getcwd()
        added = os.environ.get("JUDGED_PYTHONPATH", "").split(":")
        self.path = ([self.root] if here else []) + [part for part in added if part]
        self.written, self.demands = Written([]), Demands({}, {}, self.unittest)
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
        if self.asks:
            return run["status"]
        statuses, problem, cheat = self.judge(run)
        if cheat:  # what was reported is worth nothing
            statuses = dict.fromkeys(statuses, "failed")
        reports.write(self.reports, dict(self.outcome, **statuses), run["status"] or int(problem is not None), cheat)
        return self.report(statuses, problem, run["status"], cheat)

    def read(self):
        """Read the tests, and what is listed of them. The process that runs them was forked before."""
        records, calls = read_json(RECORD, []), len(read_json(REPORT, []))
        if isinstance(records, dict):
            record = records  # of each call the same
        else:
            record = records[calls] if calls < len(records) else {}
        self.demands = Demands(lists(), record, self.unittest)
        self.written = Written(self.test_files())

    def load(self):
        """Import the runner, before any judged code and from the image alone."""
        raise NotImplementedError  # abstract: each runner has its own

    def test_files(self):
        """Return the modules of the tests."""
        raise NotImplementedError  # abstract: each runner has its own

    def unseen(self, outcome):
        """Return the tests that are written, and that the runner did not report."""
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
        found = {"tests": statuses, "problem": problem, "cheat": cheat, "listed": bool(self.demands.tests)}
        wants = self.evidence.wants()[:WANTS] if problem is not None else []
        runs.append(dict(found, evidence=self.evidence.report(statuses), wants=wants))
        try:
            with open(REPORT, "w") as file:
                json.dump(runs, file)
        except OSError as error:
            print("the report can't be written: %s" % error)
        if problem is not None:
            # What is printed may be read in a later run of the same tests: the report says which these are.
            print("verifier: %s" % re.sub(r"(tests not seen to pass): .*", r"\1", problem, flags=re.DOTALL))
            return status or 1
        return 0

    def prepare(self):
        """Let a listed suite read its tree, and other tests add files to it. Nobody may read the tests themselves,
        unless the list says that they read their own source."""
        if self.demands.tests:
            odd = "( -perm /022 -o ! -perm -444 -o -type d ! -perm -555 ) -exec chmod u+rwX,go+rX,go-w {} +"
            find(self.root, "! -type l " + odd)
        open_folders(self.root, self.written.files)
        for path in [] if lists().get("READABLE") else self.written.files:
            try:
                os.chmod(path, 0o600)
            except OSError:
                pass  # not root's: it lies in the image
        for folder in {os.path.dirname(path) for path in self.written.files if path.startswith(TESTS + "/")}:
            open_helpers(self.written.sources.values(), folder, self.written.files)

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
        gc.disable()  # it would go through all syntax again and again, and find nothing
        self.read()
        self.prepare()
        try:
            os.write(ready, json.dumps(self.written.files).encode() + b"\n")
            for code in self.programs():
                file.write(code)
                file.flush()
                os.write(ready, b"%d\n" % len(code))
        except BrokenPipeError:
            pass  # the child has ended already
        file.close()
        os.close(ready)

    def programs(self):
        """Yield what is handed on: the program, then the modules of the tests."""
        yield marshal.dumps(self.program())
        spared, readable = self.demands.spared(self.written), bool(lists().get("READABLE"))
        codes = handed_on(self.written, self.key, self.root, self.args, spared, readable, HERE + "/decoys")
        for code, path in zip(codes, self.written.files):  # in this order `codes` comes to its end
            compiled.leave(path, self.written.sources[path], code)
            yield code

    def program(self):
        """Return the compiled program that runs the tests; None where there is none."""
        return None

    def child(self, waiting, file, writer, answered):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        close_ours((file,))
        become_judged()
        ask(writer, answered, self.root)
        sys.path[:] = [part for part in sys.path if part != HERE and not within(part, self.root)]
        for name, module in list(sys.modules.items()):
            if name != "__main__" and (getattr(module, "__file__", None) or "").startswith(HERE + "/"):
                del sys.modules[name]  # what is judged may have modules of these names
        add_path([part for part in self.path if (os.path.realpath(part) + "/").startswith(TESTS + "/")])
        reporter, code = self.execute(Modules(waiting, file), writer)
        reporter.end(code)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            pass  # what reads has ended, as `head` does
        os._exit(code)

    def judge(self, run):
        """Return (status per test, why they aren't enough or None, the sign of cheating in that or None)."""
        self.evidence = Evidence(self.key, self.demands.record)
        self.evidence.read(run["messages"])
        told = Told(run, self.written)
        self.outcome, signs = self.evidence.judge(told.outcomes, self.demands.includes)
        return verdict(told, self.outcome, signs, self.demands, self.written, self.unseen)
