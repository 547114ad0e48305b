"""Tasks of several steps: told, worked on and judged one after the other."""

import json
from dataclasses import replace

import pytest
from samples import rollout
from task_formats import write

from envs.checking.check import check_tasks
from envs.checking.manifest import with_record
from envs.judging.record import merged
from envs.judging.steps import combined, joined, parts
from envs.tasks.harbor import load_task
from envs.types import SIGN, Hidden, Step, Task, TestStatus, Verdict

JUDGE = "cmp -s /app/made /tests/wanted && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"


def two_steps(root, more=""):
    """A task of which the second step begins with what the first one made."""
    files = {
        "task.toml": f'[[steps]]\nname = "one"\n{more}\n[[steps]]\nname = "two"\n',
        "environment/Dockerfile": "FROM x\nWORKDIR /app\n",
        "tests/test.sh": JUDGE,
        "steps/one/solution/solve.sh": "echo 1 >> made\n",
        "steps/two/solution/solve.sh": "test ! -e /tests && echo 2 >> made\n",
        "steps/two/workdir/setup.sh": "echo set up >> made; rm setup.sh\n",
    }
    for name, wanted in (("one", "1\n"), ("two", "1\nset up\n2\n")):
        files[f"steps/{name}/instruction.md"] = f"Append the number of step {name}.\n"
        files[f"steps/{name}/tests/wanted"] = wanted
    return write(root / "counting", files)


@pytest.mark.docker
async def test_the_reference_of_each_step_passes_and_doing_nothing_does_not(docker_backend, tmp_path):
    (result,) = await check_tasks(docker_backend, [load_task(two_steps(tmp_path))])
    assert result.ok, result.problem
    assert (result.reference, result.nothing) == ((1.0,), (0.0,))


def steps(*least, last_counts=False):
    made = [Step(f"s{place}", "Do it.", Hidden(), least=one) for place, one in enumerate(least)]
    return Task("t", "Do it.", steps=made, last_counts=last_counts)


def test_the_reward_is_the_mean_or_the_last_steps():
    first = Verdict(1.0, "good", {"a": TestStatus.PASSED}, {SIGN + "x": 1.0, "verifier_s": 1.0, "m": 3.0})
    second = Verdict(0.5, "half", {"a": TestStatus.FAILED}, {"verifier_s": 2.0, "m": 1.0})
    verdict = combined(steps({}, {}, {}), [first, second])
    assert (verdict.reward, verdict.explanation) == (0.75, "Step s0: good\nStep s1: half")
    assert verdict.tests == {"s0/a": TestStatus.PASSED, "s1/a": TestStatus.FAILED}
    assert verdict.metrics == {"reward/s0": 1.0, "reward/s1": 0.5, SIGN + "x": 1.0, "verifier_s": 3.0, "m": 3.0}
    assert combined(steps({}, {}, last_counts=True), [first, second]).reward == 0.5


def test_what_the_tests_of_each_step_told_is_asked_of_that_step():
    first = Verdict(1.0, "", evidence=[{"tests": {"a": []}}], seen={"x": "there"})
    second = Verdict(1.0, "", evidence=[{"tests": {"b": []}}])
    verdict = combined(steps({}, {}), [first, second])
    assert verdict.evidence == [{"step": "s0", "tests": {"a": []}}, {"step": "s1", "tests": {"b": []}}]
    assert verdict.seen == {"x": "step s0: there"}
    task = with_record(steps({}, {}), merged([verdict.evidence]))
    asked = [list(json.loads(step.hidden.record)[0]["tests"]) for step in task.steps]
    assert asked == [["a"], ["b"]]
    assert [part.hidden.record for part in parts(task)] == [step.hidden.record for step in task.steps]


def test_a_step_with_seen_tests_is_watched_although_another_has_none():
    record = merged([[{"step": "s1", "tests": {"a": []}}]])
    task = with_record(steps({}, {}), record, watched=False)
    assert [step.hidden.watched for step in task.steps] == [False, True]
    assert [step.hidden.watched for step in with_record(steps({}, {}), "", watched=False).steps] == [False, False]
    assert [step.hidden.watched for step in with_record(steps({}, {}), record).steps] == [None, None]


def test_a_task_without_steps_is_its_only_part():
    task = Task("t", "Do it.")
    assert parts(task) == [task]
    assert [part.instruction for part in parts(steps({}, {}))] == ["Do it.", "Do it."]


def test_results_are_joined_with_their_rows_and_turns_numbered_on():
    one = rollout().result
    both = joined([one, one])
    assert [step.index for step in both.steps] == [0, 1, 2, 3]
    assert [row.segment for row in both.segments] == [0, 1]
    assert both.counts.tool_calls == 2 * one.counts.tool_calls
    assert both.to_messages() == one.to_messages() * 2
    kinds = [replace(step, branch=kind) for step, kind in zip(one.steps, ("main", "summary"), strict=True)]
    compaction = {"version": "1", "count": 1, "tokens_saved": 20, "summaries": [1]}
    told = {"branches": {"main": 1, "summary": 1}, "untrained_tokens": {"a": 3}, "compaction": compaction}
    shorter = replace(one, steps=tuple(kinds), metadata={"conversations": told, "agent": {"exit_code": 0}})
    assert joined([shorter, one, shorter]).metadata == {
        "conversations": {
            "branches": {"main": 4, "summary": 2},
            "untrained_tokens": {"a": 6},
            "compaction": {"version": "1", "count": 2, "tokens_saved": 40, "summaries": [1, 5]},
        },
        "agent": {"exit_code": 0},
    }
    with pytest.raises(ValueError, match="no result"):
        joined([])
