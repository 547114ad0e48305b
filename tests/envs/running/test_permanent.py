"""What passes and what does not; a run in which nothing but the latter happens ends with its name."""

import asyncio

import pytest
from sums import Sums

from atropos_agent.engines.errors import EngineDown, Refused
from atropos_agent.types import AgentError, EngineError, TokenMismatch, Unanswered
from envs.running.commands import evaluate_once, process_groups
from envs.running.failures import attribute
from envs.running.permanent import FAILURES, FailureWatch, NothingWorks, is_permanent
from envs.types import Failure, InfraError, Task
from sandboxes.base import DaemonError, ImageMissing, SandboxDied, SandboxError, SandboxTimeout, StorageFull

TASKS = [Task(f"task-{n}", "Do it.", image=f"image-{n}") for n in range(4)]


def caused(error, cause):
    error.__cause__ = cause
    return error


class Unauthorized(Exception):
    """As an HTTP client raises it."""

    status_code = 401


def seen(error):
    """The infrastructure failure that a worker makes of an exception."""
    return error if isinstance(error, InfraError) else caused(attribute(error), error)


@pytest.mark.timeout(10)
def test_an_error_that_is_its_own_cause_is_looked_at_once():
    error = EngineError("the inference server failed")
    assert not is_permanent(seen(caused(error, error)))


@pytest.mark.parametrize(
    "error",
    [
        Refused("401"),
        TokenMismatch("no ids"),
        Unanswered("what the agent asked first was refused: tools[0].type: is run by a provider"),
        SandboxError("unknown runtime specified runcs"),
        ImageMissing("there is no image x"),
        ValueError("unknown tool"),
        KeyError("answer"),
        caused(AgentError("a tool failed"), TypeError("not callable")),
        caused(EngineError("Unauthorized: no key"), Unauthorized()),
        InfraError(Failure.TASK, "the prompt left no room for a reply"),
        InfraError(Failure.VERIFIER, "the reward is nan", permanent=True),
    ],
    ids=repr,
)
def test_what_comes_again_with_the_same_input_is_permanent(error):
    assert is_permanent(seen(error))


@pytest.mark.parametrize(
    "error",
    [
        EngineDown("503"),
        EngineError("the inference server did not answer within 600 s"),
        caused(EngineError("no inference server has answered for 1800 s"), EngineDown("refused")),
        SandboxDied("gone"),
        SandboxTimeout("slow"),
        DaemonError("500"),
        StorageFull("full"),
        OSError(28, "No space left on device"),
        caused(ValueError("no JSON"), ConnectionResetError()),
        RuntimeError("the judge is away"),
        InfraError(Failure.SUSPENDED, "stood still"),
    ],
    ids=repr,
)
def test_what_may_be_away_or_busy_is_not(error):
    assert not is_permanent(seen(error))


def fail(failure_watch, times, error, tasks=TASKS):
    for n in range(times):
        failure_watch.note_failure(tasks[n % len(tasks)], seen(error(n, tasks[n % len(tasks)])))


def test_many_alike_of_several_tasks_leave_no_hope_whatever_numbers_they_name():
    failure_watch = FailureWatch()
    with pytest.raises(NothingWorks, match=r"12 in a row, of 4 tasks, failed alike.*: unknown tool x at 0x0b"):
        fail(
            failure_watch,
            FAILURES,
            lambda n, task: ValueError(f"unknown tool x at 0x{n:02x} of {task.id} in {task.image}"),
        )


@pytest.mark.parametrize(
    ("tasks", "error"),
    [
        (TASKS, lambda n, task: SandboxDied("gone")),
        (TASKS, lambda n, task: ValueError("one" if n % 2 else "other")),
        (TASKS[:2], lambda n, task: ValueError("of two tasks only")),
        (TASKS, lambda n, task: SandboxDied("gone") if n % 5 == 0 else ValueError("x")),
    ],
    ids=["passing", "not alike", "too few tasks", "passing now and then"],
)
def test_anything_else_leaves_hope(tasks, error):
    fail(FailureWatch(), 200, error, tasks)


def test_ids_that_stand_in_the_failures_text_make_no_difference():
    failure_watch, tasks = FailureWatch(), [Task(name, "Do it.") for name in ("a", "b", "c")]
    for number in range(FAILURES - 1):
        failure_watch.note_failure(tasks[number % 3], seen(TypeError("the reward is no number, but a coroutine")))
    with pytest.raises(NothingWorks):
        failure_watch.note_failure(tasks[0], seen(TypeError("the reward is no number, but a coroutine")))


def test_one_success_is_hope_for_good():
    failure_watch = FailureWatch()
    fail(failure_watch, FAILURES - 1, lambda n, task: ValueError("x"))
    failure_watch.note_success()
    fail(failure_watch, 200, lambda n, task: ValueError("x"))


def test_of_fewer_tasks_all_must_fail():
    with pytest.raises(NothingWorks, match="of 1 task"):
        fail(FailureWatch(tasks=1), FAILURES, lambda n, task: ValueError("x"), TASKS[:1])


def test_where_no_other_task_is_tried_one_must_fail_but_not_by_a_fault_of_its_own():
    with pytest.raises(NothingWorks, match="of 1 task"):
        fail(FailureWatch(tasks=50, at_once=1), FAILURES, lambda n, task: ValueError("x"), TASKS[:1])
    failure_watch = FailureWatch(tasks=50, at_once=1)
    for _ in range(200):
        failure_watch.note_failure(TASKS[0], InfraError(Failure.TASK, "its image is missing"))


class Mistaken(Sums):
    """Its own code is wrong."""

    async def attempt(self, task, seat):
        raise ValueError("--env.tools termnal: there is none of that name")


@pytest.mark.parametrize(("command", "total_steps"), [(process_groups, 50), (process_groups, 1), (evaluate_once, 50)])
async def test_a_run_in_which_nothing_can_work_ends_with_its_name(make_env, command, total_steps):
    env = make_env(Mistaken, total_steps=total_steps, eval_samples=8)
    async with asyncio.timeout(120):
        with pytest.raises(NothingWorks, match="termnal: there is none of that name"):
            await command(env)
