"""Compares values for the hidden tests, which ask it: with each value of a set, and reports which was equal.

Runs on any Python from 3.6.
"""

import sys

_SHOWN = 1000
"""How many characters the error of an assert says."""
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

    def __init__(self, line):
        self._line, self._told = line, set()
        self.asserts = __debug__
        """Whether asserts are run: without them that one was come to says nothing."""

    def begin(self):
        """Take note that a test has begun."""
        self._told.clear()

    def load(self):
        self._line.load(sys._getframe(1).f_globals)

    def want(self, number, values):
        return Want(number, values)

    def row(self, number, shown, values):
        return Want(number, values, shown)

    def reached(self, site):
        if self.asserts:
            self._tell(site, None, ())

    def check(self, site, how, value, want, swapped, message=None):
        """Do what an assert does."""
        __tracebackhide__ = True
        held = getattr(self, how)(site, value, want, swapped)
        if not held:
            said = "" if message is None else str(message())
            raise AssertionError(said + "\n" * bool(said) + _shown(held))

    def equal(self, site, value, want, swapped):
        if type(want) is not Want:
            if want == value if swapped else value == want:
                self.reached(site)
                return True
            return Unequal(value, (want,), "==")
        if swapped:
            return self._compare(site, want, value, "==", lambda one: one == value)
        return self._compare(site, want, value, "==", lambda one: value == one)

    def same(self, site, value, want, swapped):
        return self._compare(site, want, value, "is", lambda one: value is one)

    def inside(self, site, value, want, swapped):
        if type(want) is Want and _is_iterator(value):  # which can be asked once
            hits = ([one is each or one == each for one in want.values] for each in value)
            found = iter(next(filter(any, hits), [False] * len(want.values)))
            return self._compare(site, want, value, "has", lambda one: next(found))
        return self._compare(site, want, value, "has", lambda one: one in value)

    def method(self, site, method, plain, place, want, *args, **options):
        """Call a method of unittest with what is equal. plain: it compares by `==`. place: where that goes."""

        def call(one):
            given = list(args)
            given[place] = one
            return method(*given, **options)

        if type(want) is not Want:
            call(want)
            return self.reached(site)
        __tracebackhide__ = True
        other = args[1 - place]
        if getattr(method, "__name__", "") in ("assertIn", "assertCountEqual") and _is_iterator(other):
            args = tuple(list(one) if one is other else one for one in args)
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


def _shown(unequal):
    """Return what the error of an assert says."""
    said, error = _tried(lambda: "assert %r" % unequal)
    if error is not None:
        said = "assert something of which repr() raises %s" % type(error).__name__
    return said if len(said) <= _SHOWN else "%s ... %s" % (said[: _SHOWN // 2], said[-_SHOWN // 2 :])


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
