"""The key: where the sites of the tests are, and what is expected there. Root's process alone has it.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import collections
import re

TOKEN = "decoy%dx%s"
"""What stands for an expected value in the id of a test; it ends with 0 where the value does with a digit, or x."""
_TOKENS = re.compile(r"decoy(\d{1,9})x[0x]")
_ESCAPES = {i: "\\x%02x" % i for i in range(128) if not 32 <= i < 127}
_ESCAPES.update({ord("\t"): "\\t", ord("\r"): "\\r", ord("\n"): "\\n"})
"""How pytest writes bytes that can't be printed."""


class Key:
    """What root's process alone knows: the sites of all modules, and what is expected there.

    sites: (path, line, column) by number. answers: a `Choice` by number. must: the sites that each run of a test comes
    to, {(path, test): numbers}. asked: the sites that compare with decoys, {site: the numbers of their sets}, with None
    among them where it may be with a value that has none. branches: the sites that other right code may not come to.
    """

    def __init__(self):
        self.sites, self.answers, self.must, self.asked = [], [], {}, {}
        self.branches = set()
        self._numbers, self._names, self._ids = {}, [], []

    def site(self, path, node):
        self.sites.append((path, getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        return len(self.sites) - 1

    def forget(self, path):
        """Ask for nothing of a module: it stays as it is."""
        self.asked = {site: numbers for site, numbers in self.asked.items() if self.sites[site][0] != path}
        self.must = {test: numbers for test, numbers in self.must.items() if test[0] != path}

    def names(self):
        """Return the places of all sites, as they are in each run: (file, line, column, how many before it there)."""
        if len(self._names) != len(self.sites):
            seen = collections.Counter()
            self._names = []
            for site in self.sites:
                self._names.append(site + (seen[site],))
                seen[site] += 1
        return self._names

    def answer(self, choice):
        """Return the number of a set; the same for the same one."""
        if id(choice) not in self._numbers:
            self.answers.append(choice)
            self._numbers[id(choice)] = len(self.answers) - 1
        return self._numbers[id(choice)]

    def token(self, value):
        """Return what stands for an expected value in the id of a test: the same where pytest writes the same."""
        text = id_of(value)
        if text not in self._ids:
            self._ids.append(text)
        return TOKEN % (self._ids.index(text), "0" if text[-1:].isdigit() else "x")

    def real_id(self, text):
        """Return the id of a test with expected values where tokens stand for them."""
        return _TOKENS.sub(lambda match: (self._ids[int(match.group(1)) :] or [match.group()])[0], text)


def id_of(value):
    """Return what pytest writes for a literal in the id of a test."""
    if isinstance(value, bytes):
        return value.decode("ascii", "backslashreplace").translate(_ESCAPES)
    return value.encode("unicode_escape").decode("ascii") if isinstance(value, str) else str(value)
