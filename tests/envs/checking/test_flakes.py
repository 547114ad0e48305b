"""The same changes with different verdicts put a task in doubt, and decide nothing."""

import json
from dataclasses import replace

import orjson
import pytest
from samples import rollout, task
from tree_samples import archive, member

from envs.checking.flakes import disagreement, doubts_of, in_doubt
from envs.judging.changes import Changes
from envs.judging.saved_changes import pack_changes
from envs.records.atif import to_atif
from envs.types import VERIFIER_TIMED_OUT, BadTask, TestStatus, Verdict

PASSED, FAILED, MISSING = TestStatus.PASSED, TestStatus.FAILED, TestStatus.MISSING


def verdict(reward=0.0, metrics=None, **tests):
    return Verdict(reward, "", tests, metrics or {})


def wrote(text, at=0):
    """Changes with one written file. at: when it was written."""
    info, data = member("a.py", text)
    info.mtime = at
    return Changes(archive((info, data)), added=("a.py",))


def judged(changes, verdict, of="task"):
    return of, (pack_changes(changes, 10**6),), verdict


def test_a_task_is_in_doubt_if_the_same_changes_got_another_status_or_reward():
    assert in_doubt(
        [
            judged(Changes(), verdict(a=PASSED, b=FAILED), "untouched"),
            judged(Changes(), verdict(a=FAILED, b=FAILED), "untouched"),
            judged(wrote(b"1"), verdict(1.0), "reward"),
            judged(wrote(b"1"), verdict(0.0), "reward"),
            judged(wrote(b"1"), verdict(a=PASSED), "same"),
            judged(wrote(b"1"), verdict(a=PASSED), "same"),
            judged(wrote(b"1"), verdict(a=PASSED), "other changes"),
            judged(wrote(b"2"), verdict(a=FAILED), "other changes"),
        ]
    ) == {"untouched": {"a"}, "reward": set()}


def test_changes_are_the_same_whenever_they_were_made():
    assert in_doubt([judged(wrote(b"1", 5), verdict(a=PASSED)), judged(wrote(b"1", 9), verdict(a=FAILED))])


@pytest.mark.parametrize(
    "other",
    [
        judged(Changes(), verdict(0.0, {VERIFIER_TIMED_OUT: 1.0}, a=MISSING)),
        ("task", (), verdict(a=FAILED)),
        ("task", (pack_changes(wrote(b"1"), 1),), verdict(a=FAILED)),
        judged(Changes(), verdict(1.0, {"verifier_s": 9.0}, b=FAILED)),
    ],
    ids=["time ran out", "no work kept", "too large to be kept", "no common test"],
)
def test_what_proves_nothing_is_left_out(other):
    first = judged(Changes(), verdict(1.0, a=PASSED))
    assert in_doubt([first, other]) == in_doubt([other, first]) == {}


def test_verdicts_on_one_tree_disagree_by_tests_or_by_the_reward_alone():
    passed, failed = verdict(1.0, a=PASSED), verdict(1.0, a=FAILED)
    assert disagreement([]) is disagreement([passed]) is disagreement([passed, passed]) is None
    assert disagreement([passed, passed, failed]) == ["a"]
    assert disagreement([passed, verdict(0.0, a=PASSED)]) == []
    assert disagreement([passed, verdict(0.0, {VERIFIER_TIMED_OUT: 1.0}, a=MISSING)]) == []


@pytest.fixture
def run(tmp_path):
    """A run whose rollouts of one task left the tree untouched, and got two verdicts."""
    untouched = replace(rollout(of=task("shaky")), work=(pack_changes(Changes(), 10**6),))
    rollouts = [replace(untouched, verdict=verdict(a=status)) for status in (PASSED, FAILED)]
    (tmp_path / "rollouts.jsonl").write_bytes(b"".join(orjson.dumps(to_atif(one)) + b"\n" for one in rollouts))
    return tmp_path


def test_doubts_come_from_the_saved_rollouts_of_runs_and_from_judging_them_again(run):
    one = {"problem": "", "tests": {"b": ["passed", "failed"], "new": [None, "passed"]}, "before": 1.0, "now": 1.0}
    lines = [
        {**one, "task": "changed"},
        {**one, "task": "rewarded", "tests": {}, "now": 0.0},
        {**one, "task": "the same", "tests": {"new": [None, "passed"]}},
        {**one, "task": "not judged", "problem": "why", "now": None},
    ]
    (run / "rejudged-1.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"task": "torn')
    assert doubts_of([run]) == {"shaky": {"a"}, "changed": {"b"}, "rewarded": set()}


def test_a_run_that_can_not_be_read_is_named(tmp_path):
    with pytest.raises(BadTask, match=f"{tmp_path / 'none'} can't be read as a run"):
        doubts_of([tmp_path / "none"])
