"""GigaChat's call stands at a reply's end; only another one may come after it."""

import pytest

from atropos_agent.formats import load_format
from tools.base import ToolCall


@pytest.mark.parametrize("name", ["gigachat3", "gigachat31"])
def test_text_behind_a_call_is_a_problem_and_another_call_is_none(name):
    tool_format = load_format(name)
    first, second = (tool_format.write(ToolCall(one, {})) for one in "ab")
    assert [call.name for call in tool_format.parse(f"Well.{first}\n{second}").calls] == ["a", "b"]
    reply = tool_format.parse(f"Well.{first} Done.")
    assert not reply.calls
    assert "text after the call" in reply.problems[0]
