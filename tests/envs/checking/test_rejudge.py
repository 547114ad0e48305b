"""Saved rollouts that can't be judged again say why."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest
from samples import rollout, task

from envs.checking import rejudge
from envs.checking.rejudge import Judge, rejudge_all
from envs.judging.changes import Changes
from envs.judging.saved_changes import pack_changes
from envs.records.atif import to_atif
from envs.records.read import from_atif
from envs.types import JUDGED_IN_PLACE, InfraError, Step, TestStatus, Verdict
from sandboxes.base import DaemonUnavailable

TASK = task()


class Backend:
    async def ensure_image(self, name, context):
        return "image"


def saved(name="r-1", *changes, **options):
    work = tuple(pack_changes(one, options.pop("most", 10**6)) for one in changes or (Changes(deleted=("a",)),))
    return from_atif(to_atif(replace(rollout(name, **options), work=work)))


@pytest.fixture
def judged(monkeypatch):
    """What is judged, and what the verdict on it is."""
    calls = []

    async def judge(backend, part, image, changes):
        calls.append((part.instruction, changes.deleted))
        if changes.problem:
            return Verdict(0.0, changes.problem)
        if changes.deleted == ("fails",):
            raise InfraError("verifier", "the sandbox is gone")
        if changes.deleted == ("daemon",):
            raise DaemonUnavailable("no daemon")
        return Verdict(float("a" in changes.deleted), "seen", {"test_adds": TestStatus.FAILED})

    monkeypatch.setattr(rejudge, "judge", judge)
    return calls


def judge(tasks=(TASK,), rewarding=lambda task, outcome: outcome.verdict.reward):
    return Judge(Backend(), {one.id: one for one in tasks}, rewarding)


async def test_a_reward_that_is_no_number_is_the_problem_of_its_rollout(judged):
    one = await judge(rewarding=lambda task, outcome: None).rejudge(saved())
    assert (one.now, one.problem) == (None, "verifier: the reward is a NoneType; return a number or a Reward")


async def test_work_that_was_judged_in_place_is_gone(judged):
    placed = replace(TASK, hidden=replace(TASK.hidden, in_place=True))
    work = saved()
    before = replace(work, verdict=replace(work.verdict, metrics={JUDGED_IN_PLACE: 1.0}))
    for one in (await judge([placed]).rejudge(work), await judge().rejudge(before)):
        assert one.problem == "the work is judged in the agent's own sandbox, which is gone"
    assert not judged


async def test_what_differs_is_told(judged):
    one = await judge().rejudge(saved("r-1", Changes(deleted=("b",))))
    assert (one.before, one.now, one.changed) == (1.0, 0.0, True)
    assert one.tests == {
        "test_adds": (TestStatus.PASSED, TestStatus.FAILED),
        "test_zero": (TestStatus.MISSING, None),
    }
    same = await judge().rejudge(saved("r-2"))
    assert (same.now, same.changed) == (1.0, False)


@pytest.mark.parametrize(
    ("rollout", "why"),
    [
        (saved(of=task("unknown")), "no task of this name"),
        (saved(most=1), "the run kept up to 1"),
        (replace(saved(), work=()), "keep_work_mb"),
        (saved("r", Changes(deleted=("fails",))), "the sandbox is gone"),
    ],
)
async def test_what_can_not_be_judged_says_why_and_is_no_change(judged, rollout, why):
    found = await judge().rejudge(rollout)
    assert why in found.problem
    assert (found.now, found.changed) == (None, False)


async def test_a_daemon_that_is_away_ends_it(judged):
    with pytest.raises(DaemonUnavailable):
        async for _ in rejudge_all(judge(), iter([saved("r", Changes(deleted=("daemon",)))]), 1):
            pass


async def test_whoever_stops_early_leaves_no_judgement_behind(monkeypatch):
    ended = []

    async def slow(backend, part, image, changes):
        try:
            await asyncio.sleep(0.1 if changes.deleted == ("0",) else 60)
        finally:
            ended.append(changes.deleted)
        return Verdict(1.0, "seen")

    monkeypatch.setattr(rejudge, "judge", slow)
    rollouts = [saved(f"r-{n}", Changes(deleted=(str(n),))) for n in range(3)]
    async with aclosing(rejudge_all(judge(), iter(rollouts), 3)) as results:
        async for _ in results:
            break
    assert sorted(ended) == [("0",), ("1",), ("2",)]


async def test_steps_are_judged_each_by_its_own_tests(judged):
    steps = [Step(name, name, TASK.hidden) for name in ("one", "two", "three")]
    several = replace(TASK, steps=steps)
    begun = saved("r-1", Changes(deleted=("a",)), Changes(problem="its setup.sh ended with 1"))
    found = await judge([several]).rejudge(begun)
    assert [part for part, _ in judged] == ["one", "two"]
    assert found.now == 0.5


async def test_a_step_begins_only_after_one_that_is_good_enough(judged):
    one, two = Step("one", "one", TASK.hidden, least={"reward": 1.0}), Step("two", "two", TASK.hidden)
    several = judge([replace(TASK, steps=[one, two])])
    fails = await several.rejudge(saved("r-1", Changes(deleted=("b",)), Changes(deleted=("a",))))
    assert ([part for part, _ in judged], fails.now) == (["one"], 0.0)
    missing = await several.rejudge(saved("r-2"))
    assert missing.problem == "step two would begin now, and no agent has worked on it"
    fewer = await judge().rejudge(saved("r-3", Changes(deleted=("a",)), Changes(deleted=("a",))))
    assert fewer.problem == "the run kept the work of 2 steps, and the task has 1 now"


async def test_evaluations_are_rewarded_by_the_verdict_alone(judged):
    half = judge(rewarding=lambda task, outcome: outcome.verdict.reward / 2)
    trained = await half.rejudge(saved())
    evaluated = await half.rejudge(saved(seat=replace(rollout().seat, evaluating=True)))
    assert (trained.reward_now, evaluated.reward_now) == (0.5, 1.0)
