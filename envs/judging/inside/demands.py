"""What is demanded of the tests: what the list names, else what the reference passed, else all that are written.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import collections

from node_ids import is_id


class Demands:
    """What is demanded of one call of a test runner.

    listed: what tests.json says. record: what `tasks check` saw of the reference, {} for nothing. titled: whether tests
    may be listed by titles, which unittest prints in place of names.

    reference: whether it is the reference that is judged, before there is a record: what it leaves out is not demanded.
    tests: that are listed. recorded: that the reference passed, where none are listed. exact: how each test must end,
    None where passing is all.
    """

    def __init__(self, listed, record, titled):
        self._wanted = listed.get("FAIL_TO_PASS", [])
        self.tests = self._wanted + listed.get("PASS_TO_PASS", [])
        self.exact = listed.get("EXACT")
        self.reference = bool(record.get("reference"))
        self.record = record
        self.recorded = () if self.tests else record.get("tests", ())
        self._whole_functions = bool(listed.get("FUNCTIONS"))
        self._titled = titled

    def includes(self, test):
        """Return whether a test must pass."""
        if self.recorded:
            return test in self.recorded
        if not self.tests or test in self.tests:
            return True
        base = test.split("[")[0]
        cut = any("[" in name and not name.endswith("]") and test.startswith(name) for name in self.tests)
        return cut or (self._whole_functions and base in self.tests) or (self._titled and "::" in test)

    def spared(self, written):
        """Return the tests of each module that must not pass, and so stay as they are: {path: names}."""
        failing = {name.split("[")[0] for name, what in (self.exact or {}).items() if what != "passed"}
        return {
            path: {name for name in written.functions(path) if any(is_id(test, path, name) for test in failing)}
            for path in written.files
        }

    def found(self, name, outcome, told, written):
        """Return the status of a listed test.

        An id that was cut at a blank stands for all that begin so, and a title for all that have it.
        """
        if self._titled and "::" not in name:
            ended = {outcome[test] for test in told.titles.get(name, ())}
            return "missing" if not ended else "passed" if ended == {"passed"} else "failed"
        if outcome.get(name) == "skipped" and name not in self._wanted and written.may_fail(name):
            return "passed"
        cut = "[" in name and not name.endswith("]")
        if name in outcome or not (cut or self._whole_functions):
            return outcome.get(name, "missing")
        start = name + (" " if cut else "[")
        cases = [what for test, what in outcome.items() if test.startswith(start)]
        return "missing" if not cases else "passed" if set(cases) == {"passed"} else "failed"

    def lost(self, outcome):
        """Return the recorded tests that did not run.

        For a case of a test another one may stand, if all of that test passed: rows may be drawn by chance, or be of
        what the code made.
        """
        fresh = collections.defaultdict(list)
        for test, what in outcome.items():
            if "[" in test and test not in self.recorded:
                fresh[test.split("[")[0]].append(what)
        lost = set()
        for test in set(self.recorded) - set(outcome):
            others = fresh[test.split("[")[0]] if "[" in test else []
            if others and set(others) == {"passed"}:
                others.pop()
            else:
                lost.add(test)
        return lost

    def exactly(self, outcome, told):
        """Return the status of tests that must not pass, and of unlisted ones. One that ends as it must has passed."""
        found = dict.fromkeys(self.exact, "missing")
        for name, what in outcome.items():
            if name in self.exact:
                ended = "error" if what == "failed" and name in told.errors else what
                found[name] = "passed" if ended == self.exact[name] else "failed"
            elif name not in self.tests and what != "skipped":
                found[name] = "other"
        return found
