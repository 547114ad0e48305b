"""Calls without a tag around them: they begin a reply, or they are malformed."""

from atropos_agent.formats.llama import LlamaJson
from atropos_agent.formats.pythonic import Pythonic


def test_a_call_is_read_with_its_tag_and_without():
    for tool_format, call in ((LlamaJson(), '{"name": "f", "parameters": {}}'), (Pythonic(), "[f()]")):
        for text in (call, f"\n{call}", f"{tool_format.opening}{call}", f"<think>hm</think>\n{call}"):
            reply = tool_format.parse(text)
            assert ([one.name for one in reply.calls], reply.problems) == (["f"], ()), text
        start = len("<think>hm</think>\n")
        spans = tool_format.literals(f"<think>hm</think>\n{call}")
        assert spans == [(start, start + len(call))]


def test_a_reply_that_says_something_else_calls_nothing():
    for tool_format, call in ((LlamaJson(), '{"name": "f", "parameters": {}}'), (Pythonic(), "[f()]")):
        for text in (f"I call {call}", f"{call} Done."):
            reply = tool_format.parse(text)
            assert (len(reply.calls), len(reply.problems)) == (0, 1), text
            assert "nothing else" in reply.problems[0]
        assert not tool_format.parse(f"<think>{call}").calls


def test_calls_after_the_first_have_their_own_places():
    for tool_format, call in ((LlamaJson(), '{"name": "f", "parameters": {}}'), (Pythonic(), "[f()]")):
        tagged = f"{tool_format.opening}{call}"
        text = f"{call} {tagged}"
        assert [text[start:end] for start, end in tool_format.literals(text)] == [f"{call} ", tagged]
