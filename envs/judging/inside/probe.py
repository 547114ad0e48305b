"""What the tests are given under the name `@probe`: it compares with each value of a set, and tells what was equal.

Which value is the expected one it doesn't know. What it tells can be forged: whoever does must know that too.

Runs in the verifier's sandbox, in the process of the tests, on any Python from 3.6.
"""

import os

PROBE = "@probe"
"""A name that no code can have."""
_SHOWN = 1000
"""How many characters the error of an assert says."""


class Want:
    """An expected value among decoys. number: the set's. values: what may be expected."""

    __slots__ = ("_name", "number", "values")

    def __init__(self, number, name, values):
        self.number, self._name, self.values = number, name, values

    def __repr__(self):
        return self._name or "decoy%d" % self.number

    def id(self):
        """Return what stands for it in the id of a test; None where no value would stand there."""
        return self._name or None


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
    """write: tells root's process something. begin: a test has begun."""

    def __init__(self, write):
        self._write, self._told, self._unequal = write, set(), None

    def begin(self):
        self._told.clear()

    def want(self, number, name, values):
        return Want(number, name, values)

    def reached(self, site):
        self._tell(site, None, "")

    def equal(self, site, value, want, swapped):
        if type(want) is not Want:
            if want == value if swapped else value == want:
                self.reached(site)
                return True
            return self._unlike(value, (want,), "==")
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
        other = args[1 - place]
        if getattr(method, "__name__", "") in ("assertIn", "assertCountEqual") and _is_iterator(other):
            args = tuple(list(one) if one is other else one for one in args)
        equal = (lambda one: one == other) if place == 0 else (lambda one: other == one)
        found, failed = [False] * len(want.values), None
        order = range(len(want.values))
        likely = [i for i in order if not plain or _holds(equal, want.values[i])]
        for tried in (likely, [i for i in order if i not in likely]):
            for i in tried:
                try:
                    call(want.values[i])
                    found[i] = True
                except Exception as error:
                    failed = error
            if any(found):
                break
        self._tell(site, want.number, found)
        if not any(found):
            raise failed

    def _compare(self, site, want, value, how, holds):
        found, failed = [], None
        for one in want.values:
            try:
                found.append(bool(holds(one)))
            except Exception as error:
                failed = error
                found.append(False)
        self._tell(site, want.number, found)
        if any(found):
            return True
        if failed is not None:
            raise failed
        return self._unlike(value, want.values, how)

    def _unlike(self, *comparison):
        self._unequal = Unequal(*comparison)
        return self._unequal

    def failed(self, *message):
        """Return the error of an assert whose comparison has come to nothing. message: the assert's own."""
        unequal, self._unequal = self._unequal, None
        try:
            said = "assert %r" % unequal
        except Exception as error:
            said = "assert something of which repr() raises %s" % type(error).__name__
        if len(said) > _SHOWN:
            said = "%s ... %s" % (said[: _SHOWN // 2], said[-_SHOWN // 2 :])
        return AssertionError("\n".join([*map(str, message), said]))

    def _tell(self, site, number, found):
        known = site, number, tuple(found)
        if known not in self._told:
            self._told.add(known)
            self._write(site, -1 if number is None else number, "".join("01"[one] for one in found))


def _is_iterator(value):
    try:
        return iter(value) is value
    except Exception:
        return False


def _holds(equal, one):
    try:
        return bool(equal(one))
    except Exception:
        return False


def writer(pipe):
    """Return what tells of sites through a pipe: from processes that tests start by `fork` too."""
    write = os.write

    def tell(site, number, equal):
        try:
            write(pipe, ('{"kind": "site", "site": %d, "set": %d, "equal": "%s"}\n' % (site, number, equal)).encode())
        except OSError:
            pass  # a process of the tests' that has closed it

    return tell
