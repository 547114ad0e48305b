"""What a tool format does unless it says otherwise."""

from atropos_agent.formats.base import DEFAULT_PREAMBLE
from atropos_agent.formats.hermes import Hermes
from tools.base import ToolResult


def test_results_and_a_correction_stand_in_one_message():
    messages = Hermes().messages([ToolResult("one")], "Error: not run", role="tool")
    assert messages == [
        {
            "role": "tool",
            "content": "<tool_response>\none\n</tool_response>\n<tool_response>\nError: not run\n</tool_response>",
        }
    ]


class Frameless(Hermes):
    frame = None


def test_without_a_frame_results_stand_as_they_are():
    messages = Frameless().messages([ToolResult("one"), ToolResult("two")], None, role="user")
    assert messages == [{"role": "user", "content": "one\ntwo"}]


def test_the_system_prompt_is_the_preamble_the_place_and_the_tools():
    schemas = [{"type": "function"}]
    prompt = Hermes().system_prompt(schemas, preamble=" Be good. ", working_dir="/app")
    assert prompt == f"Be good.\n\nYou work in /app.\n\n{Hermes().instructions(schemas)}"
    assert Hermes().system_prompt([], preamble="") == ""
    assert Hermes().system_prompt([]) == DEFAULT_PREAMBLE
