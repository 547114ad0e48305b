"""Evidence: the reports of the tests' sites, compared with the key.

All of it may be forged: a forger must know the expected value among a set's values.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from envs.judging.decoys.insertion import DecoyedTests
from envs.judging.decoys.key import FIRST, Place
from envs.judging.reports.receiver import Message

FORCED = "forced its tests"
_MOST_TEXT = 200


class Evidence:
    """The reports of each test.

    record: the reports of the reference's tests (`envs.judging.record`), {} for nothing.
    clean: {test: sites at which the expected value alone was equal, or that were reached}. odd: {test: sites with
    another equal value}. wanting: {site: its expected value, and whether a decoy was equal instead}.
    """

    def __init__(self, decoyed: DecoyedTests, record: Mapping[str, Any]) -> None:
        self.key, self._source, self.record = decoyed.key, decoyed.source, record
        self.clean: dict[str | None, set[int]] = collections.defaultdict(set)
        self.odd: dict[str | None, set[int]] = collections.defaultdict(set)
        self.wanting: dict[int, tuple[ast.expr, bool]] = {}
        self._forced: dict[str | None, set[int]] = collections.defaultdict(set)
        self._numbers = {place: number for number, place in enumerate(self.key.sites)}

    def read(self, messages: Iterable[Message]) -> None:
        """Take in the reports of a call, in their order. Processes that it forks run tests at the same time: each
        speaks of the test that it began, or else of the last one."""
        running: dict[str, str] = {}
        last = None
        for message in messages:
            process = str(message.get("by"))
            if message.get("kind") == "start":
                last = running[process] = str(message.get("id"))
            elif message.get("kind") == "site":
                self._site(running.get(process, last), message)

    def _site(self, test: str | None, message: Message) -> None:
        site, number, equal = message.get("site"), message.get("set"), message.get("equal")
        if type(site) is not int or type(number) is not int or not 0 <= site - FIRST < len(self.key.sites):
            return
        site, number = site - FIRST, number - FIRST
        choices = self.key.sets.get(site, [None])
        if equal == "" and None in choices:
            self.clean[test].add(site)
        if number not in choices or not isinstance(equal, str):
            return  # forged
        choice = self.key.answers[number]
        if len(equal) != len(choice.nodes) or not set(equal) <= set("01"):
            self.odd[test].add(site)
            self._forced[test].add(site)  # no comparison of ours says so
        elif "1" not in equal:
            self.wanting[site] = choice.nodes[choice.truth], False
        elif equal[choice.truth] == "1" and equal.count("1") == 1:
            self.clean[test].add(site)
        else:
            self.wanting[site] = choice.nodes[choice.truth], True
            self.odd[test].add(site)
            if "0" not in equal and len(equal) > 2:
                self._forced[test].add(site)

    def judge(
        self, statuses: Mapping[str, str], is_demanded: Callable[[str], bool]
    ) -> tuple[dict[str, str], str | None]:
        """Return the status of each test, if the sites have a say in it, and the sign of cheating.

        statuses: by test, as the runner reports. is_demanded: whether a test must pass; a sign comes of these alone. A
        test has passed if it was reported so, if each of its sites told of the expected value alone, and if all
        required sites did: those that each of its runs reaches, or each of the reference's.
        """
        found: dict[str, str] = {}
        forced = False
        excused = self._sites(self.record.get("odd", ()))  # the reference was not clean there
        if self.record.get("reference"):
            excused = excused.union(*self.odd.values())
        for test, status in statuses.items():
            odd = self.odd[test] - excused
            missing = self._expected(test) - excused - self.clean[test]
            found[test] = "failed" if status == "passed" and (odd or missing) else status
            signs = self._forced[test] - excused or (status == "passed" and missing - odd)
            forced = forced or bool(signs and is_demanded(test))
        return found, FORCED if forced else None

    def _sites(self, places: Iterable[Sequence[Any]]) -> set[int]:
        """Return the sites at recorded places."""
        known = [(path, line, column) for path, line, column, *_ in places]
        return {self._numbers[place] for place in known if place in self._numbers}

    def _expected(self, test: str) -> set[int]:
        """Return the sites that must report."""
        recorded = self._sites(self.record.get("tests", {}).get(test, ()))
        return recorded.union(*(self.key.must.get(one, set()) for one in self._source.of(test)))

    def wants(self) -> list[str]:
        """Return the expected values of sites with nothing or a decoy equal, for people: lines of text."""
        lines = []
        for site in sorted(self.wanting.keys() - self._sites(self.record.get("odd", ()))):
            path, line, _ = self.key.sites[site]
            node, decoyed = self.wanting[site]
            text = ast.unparse(node)
            text = text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "..."
            lines.append(f"{path}:{line} expects {text}" + ", and the code gave a decoy" * decoyed)
        return lines

    def report(self, statuses: Mapping[str, str]) -> dict[str, Any]:
        """Return the record for later judgements. Sites are named by their place: so they are the same in each run."""
        passed = sorted(test for test, status in statuses.items() if status == "passed")
        return {
            "tests": {test: self._places(self.clean[test] & self.key.certain) for test in passed},
            "odd": self._places(site for sites in self.odd.values() for site in sites),
            "unverified": [test for test in passed if not self.clean[test] & self.key.sets.keys()],
        }

    def _places(self, sites: Iterable[int]) -> list[Place]:
        return sorted({self.key.sites[site] for site in sites})
