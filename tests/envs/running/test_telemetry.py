"""Spans go where they are wanted, and never hold a run up."""

import re
import socket
import threading

import pytest
from otlp_receiver import OTLPReceiver

from atropos_agent import tracing
from envs.config import AgentEnvConfig
from envs.running import telemetry
from envs.running.commands import evaluate_once
from envs.running.telemetry import check_telemetry, open_telemetry, rollout_span, trace_sandbox
from envs.types import InfraError, Seat, Task
from sandboxes.base import ExecResult, Sandbox
from sandboxes.installing import install

TASK = Task("t", "Do it.")


@pytest.fixture(autouse=True)
def until_nothing_is_sent():
    """A sender that was given up logs its failure later, in the middle of another test."""
    yield
    for thread in threading.enumerate():
        if thread.name == "telemetry":
            thread.join(60)


class Noting(Sandbox):
    """Notes the variables of its commands."""

    id, workdir = "noting", "/"

    def __init__(self):
        self.told = []

    async def exec(self, command, *, env=None, **options):
        self.told.append(env)
        return ExecResult(0, b"")

    async def session(self, *, cwd=None, env=None, user=None):
        self.told.append(env)


async def test_what_an_evaluation_does_is_told_with_what_was_said(make_env):
    with OTLPReceiver() as receiver:
        await evaluate_once(make_env(otlp_url=receiver.url, otlp_content=True, eval_samples=1))
    assert len(receiver.roots) == 3
    assert receiver.resources[0]["service.name"] == "atropos-agent"
    for root in receiver.roots:
        assert root.told["atropos.evaluating"] is True
        first, *_ = receiver.below(root)
        chat, tool = receiver.below(first)
        assert (chat.name, tool.name) == ("chat scripted", "execute_tool calculator")
        assert "What is" in chat.told["gen_ai.input.messages"]
        assert "tool_call" in chat.told["gen_ai.output.messages"]
        assert "expression" in tool.told["gen_ai.tool.call.arguments"]
        assert chat.told["gen_ai.usage.input_tokens"] > 0


async def test_without_being_asked_no_span_holds_what_was_said(make_env):
    with OTLPReceiver() as receiver:
        await evaluate_once(make_env(otlp_url=receiver.url))
    assert receiver.spans
    assert not any("messages" in key or "arguments" in key for span in receiver.spans for key in span.told)


async def test_a_failed_rollout_is_a_span_of_an_error():
    with OTLPReceiver() as receiver:
        async with open_telemetry(receiver.url, {}, content=False):
            with pytest.raises(InfraError), rollout_span(TASK, Seat(3, 1, step=2), "atropos"):
                raise InfraError("engine", "lone \ud800 surrogate")
    (root,) = receiver.roots
    assert root.failed
    assert (root.told["error.type"], root.told["atropos.group"]) == ("InfraError", 3)


async def test_commands_are_told_their_trace_and_only_where_there_is_one():
    sandbox = Noting()
    assert trace_sandbox(sandbox) is sandbox
    with OTLPReceiver() as receiver:
        async with open_telemetry(receiver.url, {}, content=False):
            with rollout_span(TASK, Seat(), "atropos") as root:
                within = trace_sandbox(sandbox)
                await within.exec("true", env={"A": "1"})
                await within.session(env={"B": "2"})
                trace = f"{root.get_span_context().trace_id:032x}"
    for told, own in zip(sandbox.told, ({"A": "1"}, {"B": "2"}), strict=True):
        assert told["TRACEPARENT"].split("-")[1] == trace
        assert own.items() <= told.items()


@pytest.mark.parametrize("status", [500, 400])
async def test_a_receiver_that_refuses_costs_the_spans_alone(status, monkeypatch):
    monkeypatch.setattr(telemetry, "CLOSING_S", 0.5)
    with OTLPReceiver(status) as receiver:
        async with open_telemetry(receiver.url, {}, content=False):
            with rollout_span(TASK, Seat(), "atropos"):
                pass
        assert receiver.requests >= 1


async def test_a_receiver_that_never_answers_holds_nothing_up(monkeypatch, caplog):
    monkeypatch.setattr(telemetry, "CLOSING_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes it and never answers
        async with open_telemetry(f"http://127.0.0.1:{server.getsockname()[1]}", {}, content=False):
            with rollout_span(TASK, Seat(), "atropos"):
                pass
    assert "could not be sent" in caplog.text


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    check_telemetry("")
    with pytest.raises(ValueError, match=re.escape(install("telemetry"))):
        check_telemetry("http://a")


def test_off_by_default():
    assert AgentEnvConfig(tokenizer_name="x").otlp_url == ""
    with tracing.span("nothing") as span:
        assert not span.is_recording()
