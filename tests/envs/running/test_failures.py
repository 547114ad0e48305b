"""Infrastructure failures: told apart, and kept as evidence."""

import orjson
import pytest

from atropos_agent.types import AgentError, AgentResult, Counts, EngineError, Unanswered
from envs.records.metrics import Metrics
from envs.records.redaction import Redactor
from envs.running.concurrency import CircuitBreaker
from envs.running.database import lock_directory
from envs.running.failures import KEPT, FailureLog, attribute, attribute_errors
from envs.types import Failure, InfraError, Task
from sandboxes.base import ImageUnbuildable, SandboxError
from tools.mcp.servers import MCPServer, MCPServerError

TASK = Task("t", "Do it.")


def test_a_failure_that_is_told_apart_already_stays_as_it_is():
    error = InfraError("task", "no tests")
    assert attribute(error) is error


def test_a_dockerfile_that_is_wrong_is_the_tasks_failure_and_another_build_is_not():
    assert attribute(ImageUnbuildable("line 3")).kind is Failure.TASK
    assert attribute(SandboxError("pip could not connect")).kind is Failure.SANDBOX


def test_a_tasks_mcp_server_that_can_not_work_is_the_tasks_failure_and_one_that_died_is_tried_again():
    server = MCPServer("notes", "stdio", ("notes",), of_task=True)
    assert attribute(MCPServerError(server, "lists no tools", hopeless=True)).kind is Failure.TASK
    died = AgentError("a tool failed")
    died.__cause__ = MCPServerError(server, "ended by itself")
    assert (attribute(died).kind, attribute(died).unexpected) == (Failure.SANDBOX, False)


def test_what_nobody_tells_apart_is_the_environments_and_unexpected():
    error = attribute(KeyError("x"))
    assert (error.kind, error.unexpected) == (Failure.ENVIRONMENT, True)


def test_what_was_refused_before_a_reply_is_known_and_named():
    error = attribute(Unanswered("what the agent asked first was refused: messages: system first"))
    assert (error.kind, error.unexpected) == (Failure.ENVIRONMENT, False)
    assert "system first" in str(error)


def test_tokens_of_replies_that_were_refused_are_counted_though_the_rollout_failed(tmp_path):
    metrics = Metrics()
    log = FailureLog(tmp_path / "quarantined.jsonl", metrics, CircuitBreaker(0.5), Redactor([]))
    partial = AgentResult(False, "", (), None, (), (), counts=Counts(refused_tokens=9))
    try:
        try:
            raise EngineError("the inference server aborted the request", partial)
        except EngineError as error:
            raise attribute(error) from error
    except InfraError as error:
        log.note(TASK, error, step=1)
    assert metrics.tokens_refused == 9


async def test_the_last_failures_of_a_task_are_written_without_secrets(tmp_path):
    metrics = Metrics()
    log = FailureLog(tmp_path / "quarantined.jsonl", metrics, CircuitBreaker(0.5), Redactor(["sk-12345678"]))
    for n in range(KEPT + 2):
        log.note(TASK, InfraError("engine", f"{n}: Bearer sk-12345678"), step=1)
    with lock_directory(tmp_path):
        await log.write(TASK)
    (line,) = log.path.read_text().splitlines()
    written = orjson.loads(line)
    assert written["task"] == "t"
    assert [failure["message"] for failure in written["failures"]] == [
        f"engine: {n}: Bearer ***" for n in range(2, KEPT + 2)
    ]
    assert metrics.failures == {"engine": KEPT + 2}
    assert log.breaker.last == f"engine: {KEPT + 1}: Bearer ***"
    log.forget(TASK)
    with lock_directory(tmp_path):
        await log.write(TASK)
    assert orjson.loads(log.path.read_text().splitlines()[1])["failures"] == []


def test_whatever_a_block_raises_is_an_infrastructure_failure_but_for_what_is_excepted():
    with pytest.raises(InfraError) as caught, attribute_errors(TimeoutError):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)
    mine = InfraError("task", "no tests")
    with pytest.raises(InfraError) as caught, attribute_errors():
        raise mine
    assert caught.value is mine and mine.__cause__ is None
    with pytest.raises(TimeoutError), attribute_errors(TimeoutError):
        raise TimeoutError


async def test_failures_alike_show_their_stack_once(tmp_path, caplog):
    log = FailureLog(tmp_path / "quarantined.jsonl", Metrics(), CircuitBreaker(1.0), Redactor([]))

    def fails(name):
        try:
            {}[name]
        except KeyError as error:
            raise attribute(error) from error

    for name in "abc":
        with pytest.raises(InfraError) as raised:
            fails(name)
        log.note(TASK, raised.value, step=0)
    assert caplog.text.count("Traceback") == 2, "of the cause, and of the failure that it is the cause of"
    assert caplog.text.count("an unexpected failure") == 3


async def test_evidence_is_written_whatever_a_model_has_said(tmp_path):
    log = FailureLog(tmp_path / "quarantined.jsonl", Metrics(), CircuitBreaker(0.5), Redactor([]))
    said = {"role": "assistant", "content": "\ud800", "tool_calls": [{"arguments": {"n": 10**30}}]}
    error = InfraError(Failure.SANDBOX, "it died at \ud800")
    error.__cause__ = AgentError("died", AgentResult(False, "", (), None, (), (said,)))
    log.note(TASK, error, step=1)
    with lock_directory(tmp_path):
        await log.write(TASK)
    (failure,) = orjson.loads((tmp_path / "quarantined.jsonl").read_bytes())["failures"]
    assert failure["messages"][0]["content"] == "?"
