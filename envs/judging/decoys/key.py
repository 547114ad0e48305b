"""The key: the sites of the tests, and the expected values there. It never enters a sandbox."""

from __future__ import annotations

import ast

from envs.judging.decoys.sets import Choice

Place = tuple[str, int, int]
"""A site as it is in each run: file, line, column of its statement."""
FIRST = 10**9
"""The first number of sites and sets in tests with decoys: no value that a test may expect."""


class Key:
    """The sites of all modules.

    sites: by number. answers: a `Choice` by number. must: the sites that each run of a test
    reaches, {(path, test): numbers}. sets: the sites that compare with decoys, {site: the numbers of their sets}, with
    None among them if its value may have no set. certain: the sites that all right code reaches.
    """

    def __init__(self) -> None:
        self.sites: list[Place] = []
        self.answers: list[Choice] = []
        self.must: dict[tuple[str, str], set[int]] = {}
        self.sets: dict[int, list[int | None]] = {}
        self.certain: set[int] = set()
        self._numbers: dict[int, int] = {}

    def site(self, path: str, node: ast.stmt | ast.expr) -> int:
        """Return the number of a new site."""
        self.sites.append((path, node.lineno, node.col_offset))
        return len(self.sites) - 1

    def forget(self, path: str) -> None:
        """Ask for nothing of a module: it stays as it is."""
        self.sets = {site: numbers for site, numbers in self.sets.items() if self.sites[site][0] != path}
        self.must = {test: numbers for test, numbers in self.must.items() if test[0] != path}

    def answer(self, choice: Choice) -> int:
        """Return the number of a set; the same for the same one."""
        if id(choice) not in self._numbers:
            self.answers.append(choice)
            self._numbers[id(choice)] = len(self.answers) - 1
        return self._numbers[id(choice)]


def id_of(value: object) -> str:
    """Return pytest's text for a literal in the id of a test."""
    if isinstance(value, bytes):  # without a second backslash for each
        return value.decode("latin-1").encode("unicode_escape").decode("ascii").replace("\\\\", "\\")
    return value.encode("unicode_escape").decode("ascii") if isinstance(value, str) else str(value)
