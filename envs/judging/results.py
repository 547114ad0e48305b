"""Read the hidden tests' results as a verdict.

`reward.json` (a number, or a flat table of numbers; its `reward` counts, else the mean of shares) comes before
`reward.txt` (one number).
In a watched task the observed tests make the reward, and test.sh's own figure can only make it less. In an
unwatched one test.sh's word counts.

`Verdict.tests` has the observed tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from envs.judging.prepare import SHOWN
from envs.judging.reports.outcome import Outcome
from envs.types import MOST_REWARD, SIGN, TESTS_UNSEEN, VERIFIER_TIMED_OUT, Failure, InfraError, TestStatus, Verdict
from sandboxes.base import ExecResult
from sandboxes.plurals import plural
from tools.output import truncate

WRITTEN = "test_sh_reward"
"""The metric of test.sh's own figure."""
_LIMIT = f" of at most {MOST_REWARD:g}"
_NAMES = 200
_LONGEST = 6000
"""Characters of an explanation before the output: code under test may name its tests as it likes."""
_SEEN = {"passed": TestStatus.PASSED, "missing": TestStatus.MISSING, "skipped": TestStatus.MISSING}


class UnclearReward(ValueError):
    """No reward, or one that is not one number: only the reference can tell if the task or the code is at fault."""


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A test.sh that ran.

    logs: the non-empty files that it left, by name. seen: the observed tests; None without any. problem:
    why the files could not be read; None if they were. watched: whether the observed tests decide. known: whether the
    reference's tests were seen before. lacking: things that it asked for and the image lacks. memory: the peak, in
    bytes; 0 if not known.
    """

    result: ExecResult
    logs: Mapping[str, bytes]
    seen: Outcome | None
    problem: str | None
    watched: bool
    known: bool
    lacking: str = ""
    memory: int = 0


def read_verdict(ran: ScriptRun) -> Verdict:
    """Return the verdict. Raises InfraError if nothing says whether the task or the code is at fault."""
    rewards, problem = _written(ran)
    if ran.watched and ran.seen is None and not ran.known and not ran.result.timed_out and not _reward(rewards):
        raise InfraError(Failure.TASK, f"test.sh ran no test ({_ended(ran)}); try the task by `tasks check`")
    reward, reason = _decided(ran, rewards, problem)
    tests = _tests(ran)
    failed = [name for name, status in tests.items() if status is not TestStatus.PASSED]
    named = f"; not passed: {', '.join(failed[:10])}" if failed else ""
    counted = f"; {len(tests) - len(failed)} of {plural(len(tests), 'test')} passed{named}" if tests else ""
    wants = "".join(f"\nverifier: {line}" for line in ran.seen.wants) if ran.seen is not None else ""
    # Values are compared outside of the sandbox, so a wrong one fails no test inside.
    doubted = "The output of test.sh, which the verifier does not trust:\n" * (
        reward < _reward(rewards) and not ran.result.timed_out
    )
    sign = ran.seen.sign if ran.watched and ran.seen is not None and not ran.result.timed_out else None
    evidence = [ran.seen.evidence] if ran.seen is not None and ran.watched else []
    return Verdict(
        reward,
        f"{truncate(reason + counted, _LONGEST)}.\n{doubted}{ran.result.output[-SHOWN:]}{wants}",
        tests,
        _metrics(ran, rewards) | ({SIGN + sign: 1.0} if sign else {}),
        evidence,
        {sign: str(ran.seen.problem)} if sign and ran.seen is not None else {},
    )


def _written(ran: ScriptRun) -> tuple[Mapping[str, float], str | None]:
    """Return the rewards that test.sh wrote, and why there is none. Raises InfraError if they are unclear."""
    if ran.problem is not None:
        return {}, ran.problem
    try:
        return _rewards(ran.logs), None
    except UnclearReward as error:
        failed = ran.result.timed_out or (ran.seen is not None and ran.seen.problem is not None)
        if ran.known or failed:  # the reference wrote one that counts, or the code is seen to be at fault
            return {}, str(error)
        raise InfraError(Failure.TASK, f"{error} ({_ended(ran)}); try the task by `tasks check`") from None


def _reward(rewards: Mapping[str, float]) -> float:
    return rewards.get("reward", 0.0)


def _decided(ran: ScriptRun, rewards: Mapping[str, float], problem: str | None) -> tuple[float, str]:
    """Return the reward, and why."""
    if ran.result.timed_out:
        return 0.0, f"The tests did not end within {ran.result.duration_s:.0f} s"
    if problem is not None:
        return 0.0, f"No reward: {problem} ({_ended(ran)})"
    written = _reward(rewards)
    if not ran.watched:
        return written, f"Reward {written:g}, as test.sh wrote, because the task is unwatched"
    seen = ran.seen
    why = "no test was seen to run" if seen is None else seen.problem
    if why is None and written > 1:
        return 1.0, f"Reward 1, though test.sh wrote {written:g}: tests that passed earn no more"
    if why is None or written <= 0:
        return written, f"Reward {written:g}"
    # A task that gives a share of the reward for a share of the tests writes such a share.
    share = seen.share if seen is not None and seen.sign is None and written < 1 else 0.0
    reward = min(written, share)
    blamed = f"the code under test {seen.sign}: " if seen is not None and seen.sign else ""
    though = f"though test.sh wrote {written:g}: " if reward < written else ""
    return reward, f"Reward {reward:g}, {though}{blamed}{why}"


def _ended(ran: ScriptRun) -> str:
    lacking = f"; {ran.lacking} (default_network public gives one to tasks that name none)" if ran.lacking else ""
    return f"test.sh ended with {ran.result.exit_code}{lacking}"


def _metrics(ran: ScriptRun, rewards: Mapping[str, float]) -> dict[str, float]:
    """Return the run's resource figures, and the other rewards of test.sh."""
    metrics = {"verifier_s": ran.result.duration_s, "verifier_exit_code": float(ran.result.exit_code)}
    if ran.result.timed_out:
        metrics[VERIFIER_TIMED_OUT] = 1.0
    if ran.watched and ran.seen is not None:
        metrics["unverified_tests"] = float(len(ran.seen.evidence.get("unverified", ())))
    else:
        metrics[TESTS_UNSEEN] = 1.0
    if ran.memory:
        metrics["verifier_memory_mb"] = ran.memory / 2**20
    metrics[WRITTEN] = _reward(rewards)
    return metrics | {f"reward/{name}": value for name, value in rewards.items() if name != "reward"}


def _rewards(logs: Mapping[str, bytes]) -> dict[str, float]:
    """Return the named rewards that test.sh wrote. Raises UnclearReward."""
    if "reward.json" in logs:
        try:
            found = json.loads(logs["reward.json"])
        except (ValueError, RecursionError) as error:
            raise UnclearReward(f"reward.json is not JSON: {error}") from None
        table = found if isinstance(found, dict) else {"reward": found}
        if not table or not all(
            isinstance(value, int | float) and abs(value) <= MOST_REWARD for value in table.values()
        ):
            raise UnclearReward(f"reward.json holds {str(found)[:100]}, not finite numbers{_LIMIT}")
        if "reward" not in table:
            if len(table) > 1 and not all(0 <= value <= 1 for value in table.values()):
                names = ", ".join(sorted(map(str, table)))[:_NAMES]
                raise UnclearReward(f"reward.json has {names} and no `reward`; write which of them counts")
            table = {**table, "reward": sum(table.values()) / len(table)}
        return {name: float(value) for name, value in table.items()}
    text = logs.get("reward.txt", b"").decode("utf-8-sig", "replace").strip()
    if not text:
        raise UnclearReward("test.sh wrote no reward")
    try:
        reward = float(text)
    except ValueError:
        raise UnclearReward(f"reward.txt holds {text[:100]!r}, not a number") from None
    if not abs(reward) <= MOST_REWARD:
        raise UnclearReward(f"reward.txt holds {text[:100]!r}, not a finite number{_LIMIT}")
    return {"reward": reward}


def _tests(ran: ScriptRun) -> dict[str, TestStatus]:
    """Return the status of each observed test."""
    statuses = {} if ran.seen is None else ran.seen.statuses
    return {name: _SEEN.get(what, TestStatus.FAILED) for name, what in statuses.items()}
