"""The outcome of a judgement, from the reports of its tests."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.judging.decoys.insertion import DecoyedTests
from envs.judging.decoys.node_ids import Files
from envs.judging.reports.evidence import Evidence
from envs.judging.reports.receiver import Message
from envs.judging.reports.required import RequiredTests
from envs.judging.reports.runner_reports import RunnerReports

EARLY = "ended its tests early"
"""The sign of tests that came to no end."""
_WANTS = 5
"""How many sites without the expected value are shown to people."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The observed tests.

    statuses: "passed", "failed", "skipped", "missing" or "other", by deciding test. problem: why they aren't enough;
    None if they are. sign: of cheating, in the problem. share: how many of the demanded tests passed. wants: the
    expected values of failed tests, for people. evidence: the material of a record.
    """

    statuses: Mapping[str, str]
    problem: str | None
    sign: str | None
    share: float
    wants: Sequence[str] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)


def outcome_of(
    calls: Sequence[Sequence[Message]],
    decoyed: DecoyedTests,
    required: RequiredTests,
    written: Collection[str] = (),
) -> Outcome | None:
    """Return the outcome of the runners' calls; None if no test was seen.

    written: files of the judged code, whose tests it brings along: others need not have them."""
    reports = RunnerReports(calls, decoyed.source)
    kinds = {message.get("kind") for call in calls for message in call}
    if not reports.outcomes and not kinds & {"start", "load"} and None not in reports.statuses:
        return None
    evidence = Evidence(decoyed, required.record)
    for call in calls:
        evidence.read(call)
    outcomes, forced = evidence.judge(reports.outcomes, required.includes)
    statuses, demanded, failed = _statuses(reports, outcomes, required)
    problem, sign = _problem(reports, outcomes, required, failed)
    if failed and sign is None:
        sign = forced
    own = Files(written)
    deciding = {
        name: what
        for name, what in outcomes.items()
        if required.includes(name) and (required.tests or decoyed.source.of(name) or not own.hold(name))
    }
    report = {**evidence.report(deciding), "replaced": sorted(set(reports.tampered))}
    if sign is not None:  # no test is known to have passed
        statuses = {name: "failed" if what == "passed" else what for name, what in statuses.items()}
    share = 1 - len(failed) / demanded if demanded else 0.0
    wants = evidence.wants()[:_WANTS] if problem is not None else ()
    return Outcome(statuses, problem, sign, share, wants, report)


def _statuses(
    reports: RunnerReports, outcomes: Mapping[str, str], required: RequiredTests
) -> tuple[dict[str, str], int, list[str]]:
    """Return the status of each test, how many should have passed, and those that did not."""
    if required.tests:
        statuses = required.statuses(outcomes, reports)
        return statuses, len(statuses), [name for name, what in statuses.items() if what != "passed"]
    counts = reports.source.counts
    outcomes = {name: what for name, what in outcomes.items() if name in required.recorded or counts(name)}
    if required.recorded:
        statuses = {**outcomes, **dict.fromkeys(required.lost(outcomes), "missing")}
        failed = sorted(name for name in required.recorded if statuses.get(name, "passed") != "passed")
        return statuses, len(required.recorded), failed
    missing = [] if required.reference else reports.source.unseen(outcomes)
    failed = _failed(reports, outcomes) + missing
    if required.reference:
        failed = [name for name in failed if outcomes[name] != "skipped"]
    statuses = {**outcomes, **dict.fromkeys(missing, "missing")}
    return statuses, len(statuses), failed


def _problem(
    reports: RunnerReports, outcomes: Mapping[str, str], required: RequiredTests, failed: Sequence[str]
) -> tuple[str | None, str | None]:
    """Return why the tests aren't enough, and the sign of cheating in it."""
    replaced = [name for name in reports.tampered if name not in required.replaced]
    if replaced and not required.reference:
        return f"the code under test replaced {', '.join(replaced[:5])}", "changed what tests rely on"
    known = bool(required.tests or required.recorded)
    if (failed or not known) and reports.statuses and reports.statuses[-1] is None:
        return "the tests did not come to their end", EARLY
    if failed:
        return f"{len(failed)} test{'s' * (len(failed) > 1)} not seen to pass: {', '.join(failed[:5])}", None
    if not known and not any(what == "passed" and reports.source.counts(name) for name, what in outcomes.items()):
        return "no test passed", None
    return None, None


def _failed(reports: RunnerReports, outcomes: Mapping[str, str]) -> list[str]:
    """Return the tests that did not pass, and that neither skip themselves nor are expected to fail."""
    failed = [name for name, what in outcomes.items() if what != "passed" and name not in reports.skipped]
    skipped = collections.Counter(name.split("[")[0] for name in failed if outcomes[name] == "skipped")

    def is_expected(name: str) -> bool:
        function = name.split("[", maxsplit=1)[0]
        return reports.source.may_fail(name) or skipped[function] <= reports.source.failing_rows(name)

    return [name for name in failed if outcomes[name] != "skipped" or not is_expected(name)]
