"""A sampled reply as an agent gets it."""

import json
import re
from collections import Counter
from functools import reduce

import pytest
from agents import AGENTS, ChatAgent, assert_every_token_is_accounted_for, opened
from native import DONE, Said, asks
from native_families import fitted_family

from atropos_agent.formats.reading import decode_json
from atropos_agent.gateway import answers
from atropos_agent.gateway.answers import object_of
from atropos_agent.gateway.requests import ReplyCall
from tools.base import ToolCall


async def answered(fitted, scripted, **body):
    async with opened(fitted, [scripted]) as (client, _):
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


@pytest.mark.parametrize(
    ("kind", "of_thinking", "of_reply"),
    [
        ("chat", "completion_tokens_details.reasoning_tokens", "completion_tokens"),
        ("responses", "output_tokens_details.reasoning_tokens", "output_tokens"),
        ("gemini", "thoughtsTokenCount", "candidatesTokenCount"),
    ],
)
async def test_tokens_of_thinking_are_counted(fitted, kind, of_thinking, of_reply):
    thinking = "It is 42, as 6 * 7 is."
    tokens = len(fitted.template.encode(thinking))
    async with opened(fitted, [Said(content="42", thinking=thinking), DONE]) as (client, engine):
        for number, expected in enumerate((tokens, 0)):
            agent = AGENTS[kind](client)
            agent.user(f"go {number}")
            body = json.loads((await client.call(agent.path, agent.request()))[2])
            usage = body["usageMetadata" if kind == "gemini" else "usage"]
            assert reduce(dict.get, of_thinking.split("."), usage) == expected
            sampled = len(engine.exchanges[number].ids)
            assert usage[of_reply] == (sampled - expected if kind == "gemini" else sampled)


def test_what_was_sampled_is_found_in_the_order_of_the_calls_and_decoded_once(monkeypatch):
    decodings = Counter()

    def counts(text, start):
        decodings[text, start] += 1
        return decode_json(text, start)

    monkeypatch.setattr(answers, "decode_json", counts)
    texts = [f'{{"text":  "{number}", "more": {{"n": 1}}}}' for number in range(300)]
    calls = [ToolCall("say", json.loads(text)) for text in texts]
    apart = [f'<tool_call>{{"name": "say", "arguments": {text}}}</tool_call>' for text in texts]
    for spans in (apart, ["".join(apart)]):
        assert list(answers._sampled_arguments(calls, spans)) == texts
    assert set(decodings.values()) == {1}
    bare = [f"<say><text>{text}</text></say>" for text in ("{" * 40, '{"a": 1}')]
    assert list(answers._sampled_arguments([ToolCall("say", {"text": "x"})] * 2, bare)) == ['{"text": "x"}'] * 2


@pytest.mark.parametrize("kind", AGENTS)
async def test_a_call_of_a_model_without_tools_is_text(with_calls, kind):
    """An agent that shows its tools in its prompt reads the calls itself."""
    async with opened(with_calls, [asks("one", content="Well."), Said(spoiled="{"), DONE]) as (client, engine):
        agent = AGENTS[kind](client, tools=())
        for text in ("go", "It said: one", "That was no call."):
            agent.user(text)
            assert agent.calls(await agent.ask()) == []
        first, broken, _ = [sampled for _, sampled in client.session.turns]
        result = await client.session.result()
    assert first.answer.content == f"Well.\n{with_calls.format.write(ToolCall('say', {'text': 'one'}))}"
    assert broken.answer.content == broken.step.response.strip()
    assert (len(result.segments), result.counts.tool_calls, result.counts.malformed_calls) == (1, 0, 0)
    assert_every_token_is_accounted_for(result, engine)


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


def test_tools_that_a_call_does_not_name_are_not_looked_for(monkeypatch):
    """Each has a pattern of its own: a thousand tools and 400 broken calls took half a minute."""
    monkeypatch.setattr(answers, "_place", lambda *_: 1 / 0)
    assert answers._name('<tool_call>\n{"na', [f"tool_{number}" for number in range(1000)]) is None


def test_a_broken_call_is_an_object_with_its_text():
    assert object_of(ReplyCall("a", "say", "{x", None)) == {"raw": "{x"}
    assert object_of(ReplyCall("a", "say", "", ToolCall("say", {"text": "x"}))) == {"text": "x"}


@pytest.fixture
def kimi(smollm2_tokenizer):
    """A family whose calls have ids in the text, which no protocol's clients let be."""
    return fitted_family(smollm2_tokenizer, None, "Kimi K2, by hand")


@pytest.mark.parametrize("kind", AGENTS)
async def test_ids_of_calls_are_ours_for_clients_and_the_formats_for_the_template(kimi, kind):
    twice = Said((("say", {"text": "one"}), ("say", {"text": "two"})))
    async with opened(kimi, [twice, Said(spoiled="malformed"), asks("three"), DONE, DONE]) as (client, engine):
        agent = AGENTS[kind](client, stream=kind == "messages")
        agent.user("go")
        seen = []
        for _ in range(4):
            reply = await agent.ask()
            seen += agent.calls(reply)
            agent.results(reply)
        agent.history[0] = agent.message("an edit, so that all is told anew")
        await agent.ask()
        result = await client.session.result()
    assert len(seen) == len(set(seen)) and all(re.fullmatch("[a-zA-Z0-9_-]+", one) for one in seen)
    for exchange in (engine.exchanges[3], engine.exchanges[4]):
        shown = kimi.template.decode(exchange.prompt)
        assert "call_" not in shown.replace("tool_call_", "")
        assert all(f"## Return of functions.say:{n}\n" in shown for n in (0, 1, 2))
    assert_every_token_is_accounted_for(result, engine)
    assert len(result.segments) == 2
