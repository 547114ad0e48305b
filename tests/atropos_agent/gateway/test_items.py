"""Calls and their outputs as items of Responses."""

import pytest

from atropos_agent.gateway.items import BY_ITEM, BY_TOOL, output_of
from atropos_agent.gateway.requests import Refusal, ReplyCall
from tools.base import ToolCall


@pytest.mark.parametrize("tool", BY_TOOL)
def test_what_is_written_is_read_back_but_for_what_is_no_argument(tool):
    arguments = {"input": "a"} if tool == "custom" else {"command": ["a"], "path": "b"}
    call = ReplyCall("call_0", tool, '{"command": ["a"], "path": "b"}', ToolCall(tool, arguments))
    item = BY_TOOL[tool].write(call, "fc_gw_0_0")
    read = BY_ITEM[item["type"]].read(item, "input[0]")
    assert read == (call.text if tool == "function" else arguments)


@pytest.mark.parametrize("tool", BY_TOOL)
def test_a_call_that_cant_be_read_is_written_as_it_is(tool):
    item = BY_TOOL[tool].write(ReplyCall("call_0", tool, '{"command": ["a'), "fc_gw_0_0")
    assert '{"command": ["a' in str(item.values())


def test_an_item_that_holds_something_else_is_refused():
    with pytest.raises(Refusal, match=r"input\[0\].action"):
        BY_ITEM["shell_call"].read({"action": "ls"}, "input[0]")


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"type": "function_call_output", "output": "a"}, "a"),
        (
            {
                "type": "shell_call_output",
                "output": [
                    {"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 1}},
                    {"stdout": "", "stderr": None, "outcome": {"type": "timeout"}},
                ],
            },
            "a\nb\n[exit code 1]\n[timed out]",
        ),
        ({"type": "shell_call_output", "output": "a"}, "a"),
        ({"type": "apply_patch_call_output", "status": "completed"}, "completed"),
        ({"type": "apply_patch_call_output", "status": "failed", "output": "no such file"}, "failed\nno such file"),
    ],
)
def test_an_output_is_text(item, text):
    assert output_of(item) == text
