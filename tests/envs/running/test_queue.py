"""The task queue: which group is worked on next."""

import pytest
from samples import rollout

from envs.records.atif import RolloutWriter
from envs.records.metrics import Metrics
from envs.records.redaction import Redactor
from envs.running.concurrency import CircuitBreaker
from envs.running.failures import FailureLog
from envs.running.group import group_outcomes
from envs.running.journal import Journal
from envs.running.queue import TaskQueue
from envs.types import InfraError, Task


async def test_the_coming_task_is_the_one_that_is_drawn_next(tmp_path):
    tasks = [Task(str(n), "") for n in range(3)]
    async with Journal(tmp_path) as journal:
        failures = FailureLog(tmp_path / "quarantined.jsonl", Metrics(), CircuitBreaker(0.5), Redactor())
        queue = await TaskQueue.open(journal, tasks, failures, seed=0, task_failures=1)
        assert queue.next_task() is None  # nothing was drawn yet
        group = await queue.next()
        for _ in range(7):  # over the end of an epoch
            coming = queue.next_task()
            group = await queue.next()
            assert group.task is coming
        queue.put_back(group)
        assert queue.next_task() is group.task
        await queue.give_up(group)
        assert group.state == "quarantined"
        assert queue.next_task() is None


async def test_a_task_is_blamed_only_while_others_succeed(tmp_path):
    breaker = CircuitBreaker(0.5)
    failures = FailureLog(tmp_path / "quarantined.jsonl", Metrics(), breaker, Redactor())
    async with Journal(tmp_path) as journal:
        queue = await TaskQueue.open(journal, [Task("one", "")], failures, seed=0, task_failures=2)
        group = await queue.next()
        await queue.give_up(group)
        assert await queue.next() is group, "it was put back"
        for _ in range(16):
            breaker.note(InfraError("engine", "down"))
        await queue.give_up(group)
        assert await queue.next() is group, "everything fails, so the task is not at fault"
        for _ in range(3):
            breaker.note(None)
        failures.note(group.task, InfraError("verifier", "it crashed"), step=0)
        await queue.give_up(group)
        assert queue.is_quarantined(group.task)
    (outcome,) = group_outcomes(tmp_path)
    assert (outcome.state, outcome.evidence) == ("quarantined", "quarantined.jsonl")
    assert "2 times" in outcome.reason
    assert "it crashed" in (tmp_path / outcome.evidence).read_text()


async def test_a_task_that_can_not_be_made_as_it_is_ends_at_once_with_its_reason(tmp_path):
    breaker = CircuitBreaker(0.5)
    failures = FailureLog(tmp_path / "quarantined.jsonl", Metrics(), breaker, Redactor())
    tasks = [Task("wrong", ""), Task("right", "")]
    async with Journal(tmp_path) as journal:
        queue = await TaskQueue.open(journal, tasks, failures, seed=0, task_failures=3)
        for _ in range(40):
            failures.note(tasks[0], InfraError("task", "line 3: there is no instruction RUNN"), step=0)
        assert not breaker.is_open, "the surroundings are well"
        for _ in range(16):
            breaker.note(InfraError("engine", "down"))
        while (group := await queue.next()).task is not tasks[0]:
            pass
        await queue.give_up(group)
        assert queue.is_quarantined(tasks[0]) and not queue.is_quarantined(tasks[1])
    (outcome,) = [outcome for outcome in group_outcomes(tmp_path) if outcome.state == "quarantined"]
    assert outcome.reason == "its task is quarantined: it can't be made: line 3: there is no instruction RUNN"
    assert "RUNN" in (tmp_path / "quarantined.jsonl").read_text()


@pytest.mark.parametrize(("before", "now", "kept"), [("a", "a", [0]), ("a", "b", []), ("", "b", [0])])
async def test_a_task_that_has_changed_has_no_earlier_rollouts(tmp_path, before, now, kept):
    failures = FailureLog(tmp_path / "quarantined.jsonl", Metrics(), CircuitBreaker(0.5), Redactor())
    async with Journal(tmp_path) as journal, RolloutWriter(tmp_path) as writer:
        queue = await TaskQueue.open(journal, [Task("t", "", digest=before)], failures, seed=0, task_failures=2)
        group = await queue.next()
        made = rollout(of=group.task)
        await group.add(0, made, await writer.write(made))
    async with Journal(tmp_path) as journal:
        queue = await TaskQueue.open(journal, [Task("t", "", digest=now)], failures, seed=0, task_failures=2)
        assert [*(await queue.next()).members] == kept, "a group is judged by one verifier"


async def test_a_group_whose_task_is_not_there_any_more_is_gone(tmp_path):
    failures = FailureLog(tmp_path / "quarantined.jsonl", Metrics(), CircuitBreaker(0.5), Redactor())
    async with Journal(tmp_path) as journal:
        queue = await TaskQueue.open(journal, [Task("old", "")], failures, seed=0, task_failures=2)
        await queue.next()
    async with Journal(tmp_path) as journal:
        queue = await TaskQueue.open(journal, [Task("new", "")], failures, seed=0, task_failures=2)
        assert (await queue.next()).task.id == "new"
    assert [(outcome.task, outcome.state) for outcome in group_outcomes(tmp_path)] == [
        ("old", "gone"),
        ("new", "working"),
    ]
