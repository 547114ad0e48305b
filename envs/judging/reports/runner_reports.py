"""The reports of a judgement's calls on its tests."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from envs.judging.decoys.source_tests import SourceTests
from envs.judging.reports.receiver import Message

_MOST_TAMPERED = 200
"""How many names of replaced things are looked for in the tests: code under test can report any number."""


class RunnerReports:
    """The reports on each test. source: the tests as they were written.

    outcomes: "passed", "failed" or "skipped", of the last call that ran it. titles: the tests of each title. errors:
    tests that failed outside of their function. skipped: tests that may skip themselves, and did. statuses: how each
    call ended by its runner's word, None if it ended without one; if no runner began, the exit codes of hidden
    modules run as programs. tampered: things that tests rely on and code under test has replaced.
    """

    def __init__(self, calls: Sequence[Sequence[Message]], source: SourceTests) -> None:
        self.source = source
        self.outcomes: dict[str, str] = {}
        self.titles: dict[str, set[str]] = collections.defaultdict(set)
        self.errors: set[str] = set()
        self.skipped: set[str] = set()
        self.statuses: list[int | None] = []
        self._programs: list[int | None] = []
        self._tampered: dict[str, None] = {}
        for call in calls:
            self._read(call)
        self.statuses = self.statuses or self._programs
        self.tampered = [name for name in [*self._tampered][:_MOST_TAMPERED] if source.rely_on(name)]

    def _read(self, call: Sequence[Message]) -> None:
        status: int | None = None
        started = loaded = False
        seen: dict[str, str] = {}
        for message in call:
            kind = message.get("kind")
            if kind in ("begin", "start"):
                started = True
            elif kind == "load":
                loaded = True
            elif kind == "test":
                name, outcome = str(message.get("id")), str(message.get("outcome"))
                # unittest may have several tests of one name, as `load_tests` makes them.
                seen[name] = outcome if seen.get(name, "passed") == "passed" or "title" not in message else seen[name]
                if "title" in message:
                    self.titles[str(message["title"])].add(name)
                (self.errors.add if message.get("error") else self.errors.discard)(name)
                may = outcome == "skipped" and self.source.may_skip(name, message.get("where"))
                (self.skipped.add if may else self.skipped.discard)(name)
            elif kind == "finish" and isinstance(message.get("status"), int):
                status = message["status"]
                names = message.get("tampered")
                self._tampered |= dict.fromkeys(map(str, names if isinstance(names, list) else ()))
        if started or loaded or status is not None:
            (self._programs if loaded and not started else self.statuses).append(status)
        self.outcomes.update(seen)
