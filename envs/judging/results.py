"""Read what the hidden tests left behind as a verdict.

`reward.json` (a number, or a flat table of numbers, of which `reward` counts, or else the only one) comes before
`reward.txt` (one number); where the task's own files name one of the two, the other doesn't count. What the wrappers
saw goes before both: where a test did not run, or the judged code was seen to cheat, the reward is 0 whatever was
written.

The wrappers' own report fills `Verdict.tests`; without one `ctrf.json`, a JUnit file or pytest's `-rA` lines do, which
explain a reward and never change it: judged code may have printed them.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from envs.judging.prepare import HINDERED, NAMED, REPORT, SHOWN
from envs.types import SIGN, TESTS_UNSEEN, VERIFIER_TIMED_OUT, Failure, InfraError, TestStatus, Verdict
from sandboxes.base import ExecResult

logger = logging.getLogger(__name__)

_CTRF = {"passed": TestStatus.PASSED, "failed": TestStatus.FAILED}
_PYTEST_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+)", re.MULTILINE)


def read_verdict(ran: ExecResult, logs: Mapping[str, bytes], problem: str | None = None) -> Verdict:
    """Return the verdict of a test.sh that ran.

    logs: the files that it left, not empty, by name. problem: why they could not be read; None where they were.
    Raises InfraError for several rewards of which none is said to count: that is the task's failure.
    """
    output = ran.output[-SHOWN:] + _said(logs)
    tests = _tests(logs, ran.output)
    seen = _signs(logs)
    metrics = _metrics(ran, logs) | {SIGN + sign: 1.0 for sign in seen}
    evidence = [run.get("evidence", {}) for run in _watched(logs)]
    if ran.timed_out:
        explanation = f"The tests did not end within {ran.duration_s:.0f} s.\n{output}"
        return Verdict(0.0, explanation, tests, {**metrics, VERIFIER_TIMED_OUT: 1.0}, evidence, seen)
    try:
        if problem is not None:
            raise ValueError(problem)
        rewards = _rewards(logs)
    except ValueError as error:
        return Verdict(
            0.0, f"No reward: {error} (test.sh ended with {ran.exit_code}).\n{output}", tests, metrics, evidence, seen
        )
    if len(rewards) > 1 and "reward" not in rewards and not seen:
        raise InfraError(
            Failure.TASK,
            f"reward.json has {', '.join(sorted(rewards))} and no reward, so nothing says what the work is worth; let "
            "test.sh write `reward` beside them",
        )
    reward = rewards.get("reward", next(iter(rewards.values())))
    refused = _refused(logs) if reward > 0 else None
    if refused is not None:
        return Verdict(
            0.0, f"Reward 0, not the {reward:g} of test.sh: {refused}.\n{output}", tests, metrics, evidence, seen
        )
    failed = [name for name, status in tests.items() if status is not TestStatus.PASSED]
    named = f"; not passed: {', '.join(failed[:10])}" if failed else ""
    said = f"Reward {reward:g}; {len(tests) - len(failed)} of {len(tests)} tests passed{named}.\n{output}"
    extra = {f"reward/{name}": value for name, value in rewards.items() if name != "reward"}
    return Verdict(reward, said, tests, {**metrics, **extra}, evidence, seen)


def _said(logs: Mapping[str, bytes]) -> str:
    """Return what the wrappers say to people alone: what was printed, judged code may read."""
    lines: list[str] = []
    for run in _watched(logs):
        if run.get("problem"):
            lines += [*run.get("wants", ()), run["problem"]]
    return "".join(f"\nverifier: {line}" for line in lines)


def _metrics(ran: ExecResult, logs: Mapping[str, bytes]) -> dict[str, float]:
    """Return what the run took."""
    metrics = {"verifier_s": ran.duration_s, "verifier_exit_code": float(ran.exit_code)}
    if any("evidence" in run for run in _watched(logs)):
        metrics["unverified_tests"] = sum(len(run.get("evidence", {}).get("unverified", ())) for run in _watched(logs))
    if REPORT not in logs:
        metrics[TESTS_UNSEEN] = 1.0
    if logs.get("memory", b"").strip().isdigit():
        metrics["verifier_memory_mb"] = int(logs["memory"]) / 2**20
    return metrics


def _signs(logs: Mapping[str, bytes]) -> dict[str, str]:
    """Return the signs of cheating that the wrappers saw, each with what they saw."""
    found = {run["cheat"]: str(run["problem"]) for run in _watched(logs) if run["cheat"]}
    if logs.get(HINDERED):
        found["stood in the way of hidden tests"] = logs[HINDERED].decode("utf-8", "replace").strip()
    return found


def _refused(logs: Mapping[str, bytes]) -> str | None:
    """Return why what test.sh wrote is not believed: what was seen of the judged code; None where it is."""
    for sign, what in _signs(logs).items():
        return f"the judged code {sign}: {what}"
    seen = _seen(logs)
    missing = [name for name, what in seen.items() if what == "missing"]
    if missing:
        return f"{len(missing)} tests did not run: {', '.join(missing[:5])}"
    listed = {name for run in _watched(logs) if run.get("listed") for name in run["tests"]}
    failed = [name for name in listed if seen[name] != "passed"]
    return f"{len(failed)} listed tests were not seen to pass: {', '.join(failed[:5])}" if failed else None


def _seen(logs: Mapping[str, bytes]) -> dict[str, str]:
    """Return how each test ended that the wrappers saw. A listed test is missing where no call ran it."""
    seen: dict[str, str] = {}
    for run in _watched(logs):
        for name, what in run["tests"].items():
            if what != "missing" or name not in seen:
                seen[name] = what
    return seen


def _rewards(logs: Mapping[str, bytes]) -> dict[str, float]:
    """Return the named rewards that test.sh wrote. Raises ValueError when there is none that can be used."""
    named = logs.get(NAMED, b"").decode().split()
    if "reward.json" in logs and (not named or "reward.json" in named):
        try:
            found = json.loads(logs["reward.json"])
        except (ValueError, RecursionError) as error:
            raise ValueError(f"reward.json is not JSON: {error}") from None
        table = found if isinstance(found, dict) else {"reward": found}
        if not table or not all(type(value) in (int, float) and math.isfinite(value) for value in table.values()):
            raise ValueError(f"reward.json holds {str(found)[:100]}, not finite numbers")
        return {name: float(value) for name, value in table.items()}
    if "reward.txt" not in logs or (named and "reward.txt" not in named):
        raise ValueError("the verifier wrote no reward")
    text = logs["reward.txt"].decode("utf-8", "replace").strip()
    try:
        reward = float(text)
    except ValueError:
        raise ValueError(f"reward.txt holds {text[:100]!r}, not a number") from None
    if not math.isfinite(reward):
        raise ValueError(f"reward.txt holds {text[:100]!r}, not a finite number")
    return {"reward": reward}


def _watched(logs: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the wrappers' report, which root alone could write: one entry for each call of a test runner."""
    runs: list[dict[str, Any]] = json.loads(logs.get(REPORT, b"[]"))
    return runs


def _tests(logs: Mapping[str, bytes], output: str) -> dict[str, TestStatus]:
    """Return the status of each test from whatever report there is; empty when there is none that can be read."""
    if REPORT in logs:
        found = {"passed": TestStatus.PASSED, "missing": TestStatus.MISSING, "skipped": TestStatus.MISSING}
        cheated = any(run["cheat"] for run in _watched(logs))  # then no test is known to have passed
        return {
            name: TestStatus.FAILED if cheated else found.get(what, TestStatus.FAILED)
            for name, what in _seen(logs).items()
        }
    if "ctrf.json" in logs:
        return _from_ctrf(logs["ctrf.json"])
    for name in sorted(logs):
        if name.endswith(".xml"):
            return _from_junit(logs[name])
    passed = {"PASSED": TestStatus.PASSED, "SKIPPED": TestStatus.MISSING}
    return {name: passed.get(word, TestStatus.FAILED) for word, name in _PYTEST_LINE.findall(output)}


def _from_ctrf(report: bytes) -> dict[str, TestStatus]:
    try:
        tests = json.loads(report)["results"]["tests"]
        return {str(test["name"]): _CTRF.get(test["status"], TestStatus.MISSING) for test in tests}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        logger.info("ctrf.json can't be read: %r", error)
        return {}


def _from_junit(report: bytes) -> dict[str, TestStatus]:
    if b"<!DOCTYPE" in report or b"<!ENTITY" in report:
        return {}
    try:
        cases = list(ElementTree.fromstring(report).iter("testcase"))
    except ElementTree.ParseError as error:
        logger.info("The JUnit report can't be read: %r", error)
        return {}
    return {f"{case.get('classname', '')}::{case.get('name', '')}": _junit_status(case) for case in cases}


def _junit_status(case: ElementTree.Element) -> TestStatus:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return TestStatus.FAILED
    return TestStatus.MISSING if "skipped" in kinds else TestStatus.PASSED
