"""Tool formats: chosen by name or dotted path, and added from outside in one short file."""

import sys
from pathlib import Path

import pytest

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.formats import FORMATS, ToolFormat, load_format
from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.record import problems
from atropos_agent.types import AgentConfig, StopReason
from tools.base import ToolCall, ToolRegistry

EXAMPLE = Path(__file__).parents[3] / "examples" / "tool_format.py"


@pytest.fixture
def lines(monkeypatch):
    """The example's format, chosen as a user would."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    yield load_format("tool_format:Lines")
    sys.modules.pop("tool_format")


SAY = {
    "type": "function",
    "function": {
        "name": "say",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "n": {"type": "integer"}, "deep": {"type": "object"}},
        },
    },
}


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


class Unfinished(ToolFormat):
    """Lacks everything."""


def test_a_format_is_found_by_its_name():
    assert isinstance(load_format("hermes"), Hermes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hermse", "did you mean hermes\\?; choose hermes"),
        ("package.module.Class", "package.module:name"),
        ("no_such_package:Class", "No module named 'no_such_package'"),
        ("json:NoSuchClass", "json has no NoSuchClass"),
        ("json:JSONDecoder", "no subclass"),
        ("json:dumps", "no subclass"),
        (f"{__name__}:Unfinished", "abstract method"),
        (":", "there is none of that name"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_the_remedy(name, expected):
    with pytest.raises(ValueError, match=expected):
        load_format(name)


@pytest.mark.parametrize("name", FORMATS)
def test_a_written_call_is_read_back(name):
    tool_format = load_format(name).with_tools([SAY])
    # Without a schema, parts of MiniMax M3's objects are text.
    deep = {"text": "True"} if name == "minimax_m3" else {"list": [None, True, 0.5]}
    arguments = {"text": 'a "quoted"\n</tool_call> line', "n": 1, "deep": deep}
    call = ToolCall("say", arguments, tool_format.call_id(3, "say"))
    reply = tool_format.parse(tool_format.write(call), first_id=3)
    assert reply.calls == (call,)
    assert not reply.problems


def test_the_example_is_short_enough():
    assert len(EXAMPLE.read_text().splitlines()) < 40


async def test_a_format_from_outside_the_package_calls_tools(lines, smollm2_tokenizer):
    replies = ['I add.\nCALL add {"a": 1, "b": 2}', "CALL add {1, 2}", "It is 3."]
    server = ScriptedServer(replies, smollm2_tokenizer)
    agent = AtroposAgent(server, ToolRegistry([add]), AgentConfig(), smollm2_tokenizer, tool_format=lines)
    result = await agent.run("What is 1 + 2?")
    assert result.stop_reason is StopReason.ANSWERED
    assert result.final_response == "It is 3."
    assert "CALL name" in result.messages[0]["content"]
    assert [message["content"] for message in result.messages if message["role"] == "user"][1] == "3"
    assert result.steps[0].content == "I add."
    assert result.steps[1].correction in result.messages[5]["content"]
    assert (result.counts.tool_calls, result.counts.malformed_calls) == (1, 1)
    assert problems(result.segments, result.record) == [None]
