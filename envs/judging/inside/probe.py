"""Compares values for the hidden tests, which ask it: with each value of a set, and reports which was equal.

Runs on any Python from 3.6.
"""

import sys
from builtins import *  # noqa: F403 - a test may replace those that all share

__unittest = True
"""Leaves this module's functions out of what unittest shows of a failure, as `__tracebackhide__` does for pytest."""


class Want:
    """An expected value among decoys. number: the set's. values: what may be expected. shown: what stands for it in the
    id of a test; None where no value would stand there."""

    __slots__ = ("number", "shown", "values")

    def __init__(self, number, values, shown=None):
        self.number, self.values, self.shown = number, values, shown

    def __repr__(self):
        return self.shown or "one of %s" % ", ".join(map(repr, self.values))


class Unequal:
    """What a comparison came to in which nothing was equal. It shows in what a failed assert says."""

    def __init__(self, value, values, how):
        self._value, self._values, self._how = value, values, how

    def __bool__(self):
        return False

    def __repr__(self):
        among = "one of " if len(self._values) > 1 else ""
        return "%r %s %s%s" % (self._value, self._how, among, ", ".join(map(repr, self._values)))


class Probe:
    """What modules of tests ask: it compares with each value of a set, and reports which was equal."""

    want = Want

    def __init__(self, line):
        self._line, self._told = line, set()
        self.asserts = __debug__
        """Whether asserts are run: without them that one was come to says nothing."""

    def begin(self):
        """Take note that a test has begun."""
        self._told.clear()

    def load(self):
        self._line.load(sys._getframe(1).f_globals)

    def reached(self, site):
        if self.asserts:
            self._tell(site, None, ())

    def equal(self, site, left, right):
        if type(right) is Want:
            return self._compare(site, right, left, "==", lambda one: left == one)
        if type(left) is Want:
            return self._compare(site, left, right, "==", lambda one: one == right)
        if left == right:
            self.reached(site)
            return True
        return Unequal(left, (right,), "==")

    def same(self, site, value, want):
        return self._compare(site, want, value, "is", lambda one: value is one)

    def inside(self, site, want, value):
        if _is_iterator(value):  # which can be asked once
            hits = ([one is each or one == each for one in want.values] for each in value)
            found = iter(next(filter(any, hits), [False] * len(want.values)))
            return self._compare(site, want, value, "has", lambda one: next(found))
        return self._compare(site, want, value, "has", lambda one: one in value)

    def method(self, site, method, plain):
        """Return a method of unittest that is called with what is equal. plain: it compares by `==`."""

        def ask(*args, **options):
            __tracebackhide__ = True
            places = [i for i in (1, 0) if type(args[i]) is Want]
            if not places:
                method(*args, **options)
                return self.reached(site)
            place = places[0]
            want, other = args[place], args[1 - place]
            if getattr(method, "__name__", "") in ("assertIn", "assertCountEqual") and _is_iterator(other):
                args = tuple(list(one) if one is other else one for one in args)

            def call(one):
                return method(*args[:place] + (one,) + args[place + 1 :], **options)

            equal = (lambda one: one == other) if place == 0 else (lambda one: other == one)
            found, failed = [False] * len(want.values), None
            order = range(len(want.values))
            likely = [i for i in order if not plain or _holds(equal, want.values[i])]
            for tried in (likely, [i for i in order if i not in likely]):
                for i in tried:
                    _, error = _tried(call, want.values[i])
                    found[i] = error is None
                    failed = error or failed
                if any(found):
                    break
            self._tell(site, want.number, found)
            if not any(found):
                raise failed

        return ask

    def _compare(self, site, want, value, how, holds):
        found, failed = [], None
        for one in want.values:
            held, error = _tried(lambda one: bool(holds(one)), one)
            found.append(bool(held))
            failed = error or failed
        self._tell(site, want.number, found)
        if any(found):
            return True
        if failed is not None:
            raise failed
        return Unequal(value, want.values, how)

    def _tell(self, site, number, found):
        known = site, number, tuple(found)
        if known not in self._told:
            self._told.add(known)
            told = site, -1 if number is None else number, "".join("01"[one] for one in found)
            # In the middle of a test, which may have replaced what `json` calls.
            self._line.write('{"kind": "site", "site": %d, "set": %d, "equal": "%s"}' % told)


def _is_iterator(value):
    return bool(_tried(lambda: iter(value) is value)[0])


def _holds(equal, one):
    return bool(_tried(lambda: bool(equal(one)))[0])


def _tried(ask, *args):
    """Return (answer, error) of a call that may reach code under test, whose errors are of any kind."""
    __tracebackhide__ = True
    try:
        return ask(*args), None
    except Exception as error:  # of code under test
        return None, error
