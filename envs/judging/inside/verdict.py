"""The verdict on one call of a test runner: what follows from what its process told.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import collections


class Told:
    """What a run told of its tests. status: the exit status of its process.

    outcomes: by test; "other" where it was told twice. titles: the tests of each title. errors: tests that failed
    outside of their function. skipped: tests that may skip themselves, and did. finish: the runner's own status, None
    where it told none. end: the last message, None where there was none.
    """

    def __init__(self, run, written):
        self.status, self.written = run["status"], written
        seen = collections.defaultdict(list)
        self.titles = collections.defaultdict(set)
        self.errors, self.skipped = set(), set()
        self.finish = self.end = None
        for message in run["messages"]:
            kind = message.get("kind")
            if kind == "test":
                name, outcome = str(message.get("id")), str(message.get("outcome"))
                seen[name].append(outcome)
                if "title" in message:
                    self.titles[str(message["title"])].add(name)
                if message.get("error"):
                    self.errors.add(name)
                if outcome == "skipped" and written.may_skip(name, message.get("where")):
                    self.skipped.add(name)
            elif kind == "finish":
                self.finish = message.get("status")
            elif kind == "end":
                self.end = message
        # unittest may have several tests of one name, as `load_tests` makes them.
        named = {name for names in self.titles.values() for name in names}
        self.outcomes = {
            name: found[0] if len(found) == 1 or (name in named and set(found) == {"passed"}) else "other"
            for name, found in seen.items()
        }

    def forced(self):
        """Return (why the run says nothing, the sign of cheating in that); None where it came to its end."""
        if self.finish is None or self.end is None or self.status != self.end.get("status"):
            return "the tests did not come to their end (exit status %d)" % self.status, "ended its tests early"
        tampered = [name for name in self.end.get("tampered") or () if not self.written.replaces(name)]
        if tampered:
            return "the judged code replaced %s" % ", ".join(tampered[:5]), "changed what tests rely on"
        return None


def verdict(told, outcome, signs, demands, written, unseen):
    """Return (status per test, why they aren't enough or None, the sign of cheating in that or None).

    outcome, signs: of each test, and of all, as the evidence has them. unseen: returns tests that are written and were
    not reported.
    """
    statuses = {name: demands.found(name, outcome, told, written) for name in demands.tests}
    statuses = statuses if demands.tests else dict(outcome)
    forced = told.forced()
    if forced is not None:
        return (statuses,) + forced
    if demands.tests:
        if demands.exact is not None:
            statuses.update(demands.exactly(outcome, told))
        failed = [name for name, what in statuses.items() if what != "passed"]
    elif demands.recorded:
        statuses.update(dict.fromkeys(demands.lost(outcome), "missing"))
        failed = sorted(name for name in demands.recorded if statuses.get(name, "passed") != "passed")
    else:
        missing = [] if demands.reference else unseen(outcome)
        statuses.update(dict.fromkeys(missing, "missing"))
        failed = _failed(told, outcome, written) + missing
        if demands.reference:
            failed = [name for name in failed if outcome[name] != "skipped"]
        if not failed and ("passed" not in outcome.values() or told.finish != 0):
            return statuses, "no test passed (the runner ended with %s)" % told.finish, None
    if failed:
        problem = "%d tests not seen to pass: %s" % (len(failed), ", ".join(failed[:5]))
        return statuses, problem, signs[0] if signs else None
    return statuses, None, None


def _failed(told, outcome, written):
    """Return the tests that did not pass, and that neither skip themselves nor are expected to fail."""
    failed = [name for name, what in outcome.items() if what != "passed" and name not in told.skipped]
    skipped = collections.Counter(name.split("[")[0] for name in failed if outcome[name] == "skipped")

    def counts(name):
        if outcome[name] != "skipped":
            return True
        return not written.may_fail(name) and skipped[name.split("[")[0]] > written.failing_rows(name)

    return [name for name in failed if counts(name)]
