"""A sampled reply as an agent gets it."""

from agents import ChatAgent, opened
from native import Said, asks

from atropos_agent.gateway.answers import object_of
from atropos_agent.gateway.asked import SaidCall
from tools.base import ToolCall


async def answered(fitted, said, **body):
    async with opened(fitted, [said]) as (client, _):
        agent = ChatAgent(client, **body)
        agent.user("go")
        return await agent.ask()


async def test_arguments_are_told_as_they_were_sampled(fitted):
    class Odd(type(fitted.format)):
        def write(self, call):
            return super().write(call).replace('{"text": ', '{"text":   ')

    from dataclasses import replace

    reply = await answered(replace(fitted, format=Odd()), asks("one"))
    assert reply["tool_calls"][0]["function"]["arguments"] == '{"text":   "one"}'


async def test_arguments_of_a_format_without_json_are_json(with_calls):
    reply = await answered(with_calls, asks("one"))
    assert reply["tool_calls"][0]["function"]["arguments"] == '{"text": "one"}'


async def test_a_broken_call_keeps_its_name_and_its_text(fitted):
    reply = await answered(fitted, Said(spoiled="malformed"))
    (call,) = reply["tool_calls"]
    assert call["function"]["name"] == "say"
    assert call["function"]["arguments"].startswith('{"text": "')
    assert "tool_call>" not in call["function"]["arguments"]


async def test_a_call_that_was_cut_off_is_a_call(with_calls):
    reply = await answered(with_calls, Said(spoiled="cut"))
    assert reply["tool_calls"][0]["function"]["name"] == "say"


async def test_content_ends_before_a_stop_string(fitted):
    reply = await answered(fitted, Said(content="one two three"), stop=["three", "two"])
    assert reply["content"] == "one"


def test_a_broken_call_is_an_object_with_its_text():
    assert object_of(SaidCall("a", "say", "{x", None)) == {"raw": "{x"}
    assert object_of(SaidCall("a", "say", "", ToolCall("say", {"text": "x"}))) == {"text": "x"}
