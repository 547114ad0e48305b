"""What a rollout's requests may cost: what can be no prompt, and whose turn it is."""

import asyncio
import json
import time
from itertools import pairwise

import pytest
from agents import SCHEMAS, ChatAgent, Told, opened
from native import DONE, Said, asks

from atropos_agent.gateway import bounds, encoding, forest, session
from atropos_agent.gateway.bounds import Bounds, TooLong
from atropos_agent.gateway.responses import Responses
from atropos_agent.types import StopReason, Unanswered

TOKENS = 2000
"""So many make 1500 messages, 131,072 characters and a body of 16.9 MB."""


def says(*texts):
    return {"messages": [{"role": "user", "content": text} for text in texts]}


REQUESTS = {
    "many messages": ("chat/completions", says(*["x"] * 1600)),
    "much text": ("chat/completions", says(" " * 140_000)),
    "large tools": (
        "chat/completions",
        says("go") | {"tools": [{"type": "function", "function": {"name": "a", "description": " " * 140_000}}]},
    ),
    "a large body": ("chat/completions", says("go") | {"metadata": " " * 17_000_000}),
    "a large body to be counted": ("messages/count_tokens", says(" " * 17_000_000)),
    "much text to be counted": ("messages/count_tokens", says(" " * 140_000)),
}


@pytest.mark.parametrize("kind", REQUESTS)
async def test_what_can_be_no_prompt_is_too_long_before_it_is_encoded(fitted, monkeypatch, kind):
    path, body = REQUESTS[kind]
    async with opened(fitted, [DONE], max_total_tokens=TOKENS) as (client, engine):
        with monkeypatch.context() as patched:
            patched.setattr(fitted.template, "render", lambda *_, **__: 1 / 0)
            if kind == "many messages":
                patched.setattr(session, "order_history", lambda *_: 1 / 0)
            with pytest.raises(Told, match="prompt is too long") as caught:
                await client.call(f"/v1/{path}", body)
        assert caught.value.status == 400
        assert not engine.options
        assert client.session.ended_by is (None if "count_tokens" in path else StopReason.MAX_TOKENS)


async def test_what_a_prompt_has_is_not_too_long(fitted):
    async with opened(fitted, [DONE], max_total_tokens=TOKENS) as (client, _):
        await client.call("/v1/chat/completions", says("word " * 1500) | {"tools": SCHEMAS})
        assert (await client.session.result()).success


async def test_new_messages_behind_a_reply_have_the_same_bounds(fitted, monkeypatch):
    async with opened(fitted, [asks("one"), DONE], max_total_tokens=TOKENS) as (client, _):
        agent = ChatAgent(client)
        agent.user("go")
        reply = await agent.ask()
        agent.results(reply, " " * 140_000)
        with monkeypatch.context() as patched:
            patched.setattr(fitted.template, "encode", lambda *_, **__: 1 / 0)
            with pytest.raises(Told, match="more than 129536 characters"):
                await agent.ask()
        agent.history[-1]["content"] = "short"
        await agent.ask()
        assert len((await client.session.result()).segments) == 1


async def test_a_reply_of_ours_that_is_told_in_few_words_counts_as_long_as_it_is(fitted, monkeypatch):
    """Of a broken call an agent may tell anything: it is told in our own words."""
    made, make = [], encoding._message
    broken = Said(content="word " * 500 + '<tool_call>\n{"name": "say", "arguments": {"text": </tool_call>')
    async with opened(fitted, [broken, DONE], max_total_tokens=TOKENS) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        (call,) = (await agent.ask())["tool_calls"]
        short = {"role": "assistant", "tool_calls": [{**call, "function": {"name": "x", "arguments": ""}}]}
        messages = [{"role": "user", "content": "Begin."}, *[short] * 400, {"role": "user", "content": "go"}]
        monkeypatch.setattr(encoding, "_message", lambda *args: made.append(args) or make(*args))
        with pytest.raises(Told, match="more than 129536 characters"):
            await client.call(agent.path, {"messages": messages, "tools": SCHEMAS})
        assert len(engine.options) == 1
    assert len(made) < 200, "the rest of them is not made"


def test_bounds_grow_with_the_tokens():
    for tokens in (0, 32_768, 1 << 20):
        one = Bounds(tokens)
        one.check_size([{"content": "x" * 30 * tokens}])
        one.check_number(range(tokens // 4))
        with pytest.raises(TooLong):
            one.check_size([{"content": "x"}] * (70_000 + 4 * tokens))
        with pytest.raises(TooLong):
            one.check_number(range(1001 + tokens // 4))
        assert one.body >= 64 * tokens


def test_items_that_are_one_reply_are_joined_in_time_that_grows_with_their_number():
    calls = [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}] * 60_000
    texts = [{"role": "assistant", "content": "words"}] * 60_000
    empty = [{"type": "namespace", "name": "a", "tools": []}] * 60_000
    began = time.process_time()
    request = Responses().read({"input": [{"role": "user", "content": "go"}, *calls, *texts], "tools": empty})
    assert time.process_time() - began < 10, "a minute where each item is joined to all before"
    assert (len(request.messages), len(request.messages[1].calls)) == (60_001, 60_000)


async def test_replies_of_ours_are_looked_for_by_what_they_say(fitted, monkeypatch):
    compared = []
    echoes = forest.is_echo
    async with opened(fitted, [DONE] * 30) as (client, _):
        for number in range(20):
            await client.call("/v1/chat/completions", says(f"go {number}"))
        monkeypatch.setattr(forest, "is_echo", lambda *both: compared.append(both) or echoes(*both))
        foreign = [{"role": "assistant", "content": f"I am {number}."} for number in range(300)]
        await client.call("/v1/chat/completions", {"messages": [*foreign, {"role": "user", "content": "go"}]})
    assert len(compared) < 300


async def test_what_takes_long_waits_for_others_before_it_takes_more(fitted, monkeypatch):
    monkeypatch.setattr(bounds, "_BURST_S", 0.0)
    taken = []

    def count_tokens(_):
        taken.append(time.monotonic())
        time.sleep(0.1)
        return 1

    async with opened(fitted) as (client, _):
        monkeypatch.setattr(client.session, "count_tokens", count_tokens)
        asking = [client.call("/v1/messages/count_tokens", says("go")) for _ in range(3)]
        await asyncio.gather(*asking)
        between = [later - one for one, later in pairwise(taken)]
        assert len(between) == 2
        assert min(between) >= 0.1 * (1 + bounds._REST)

        gone = asyncio.Event()
        waiting = asyncio.create_task(client.call("/v1/messages/count_tokens", says("go"), gone=gone))
        await asyncio.sleep(0.05)
        gone.set()
        assert await asyncio.wait_for(waiting, 0.2) is None, "who goes away waits no longer"
    assert len(taken) == 3


async def test_settings_that_are_not_followed_are_named_up_to_a_number(fitted):
    async with opened(fitted, [DONE] * 3) as (client, _):
        for turn in range(3):
            names = {f"{turn}-{number}-{'x' * 500}": 1 for number in range(90)}
            await client.call("/v1/chat/completions", says(f"go {turn}") | names)
        noted = (await client.session.result()).metadata["gateway"]["not_followed"]
    assert len(noted) == 100
    assert max(map(len, noted)) == 60


@pytest.mark.parametrize(("levels", "status"), [(300, 200), (600, 400), (900, 400)])
async def test_nesting_is_taken_where_all_that_follows_can_take_it(fitted, levels, status):
    """What is compared at the end of a rollout stands deeper in the stack than what is compared at a request."""
    nested = json.loads('{"a":' * levels + "1" + "}" * levels)
    async with opened(fitted, [DONE] * 2) as (client, _):
        for text in ("one", "two"):
            tool = {"type": "function", "function": {"name": "say", "parameters": {text: nested}}}
            found = await client.call("/v1/chat/completions", says(text) | {"tools": [tool]}, raises=False)
            assert found[0] == status
        if status == 200:
            await client.session.result()
        else:
            with pytest.raises(Unanswered, match="nested too deeply"):
                await client.session.result()
