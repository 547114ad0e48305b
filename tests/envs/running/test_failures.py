"""Infrastructure failures: told apart, and kept as evidence."""

import orjson

from envs.records.metrics import Metrics
from envs.records.redaction import Redactor
from envs.running.concurrency import CircuitBreaker
from envs.running.failures import KEPT, FailureLog, attribute
from envs.types import Failure, InfraError, Task

TASK = Task("t", "Do it.")


def test_a_failure_that_is_told_apart_already_stays_as_it_is():
    error = InfraError("task", "no tests")
    assert attribute(error) is error


def test_what_nobody_tells_apart_is_the_environments_and_unexpected():
    error = attribute(KeyError("x"))
    assert (error.kind, error.unexpected) == (Failure.ENVIRONMENT, True)


async def test_the_last_failures_of_a_task_are_written_without_secrets(tmp_path):
    metrics = Metrics()
    log = FailureLog(tmp_path / "quarantined.jsonl", metrics, CircuitBreaker(0.5), Redactor(["sk-12345678"]))
    for n in range(KEPT + 2):
        log.note(TASK, InfraError("engine", f"{n}: Bearer sk-12345678"), step=1)
    await log.write(TASK)
    (line,) = log.path.read_text().splitlines()
    written = orjson.loads(line)
    assert written["task"] == "t"
    assert [failure["message"] for failure in written["failures"]] == [
        f"engine: {n}: Bearer ***" for n in range(2, KEPT + 2)
    ]
    assert metrics.failures == {"engine": KEPT + 2}
    log.forget(TASK)
    await log.write(TASK)
    assert orjson.loads(log.path.read_text().splitlines()[1])["failures"] == []
