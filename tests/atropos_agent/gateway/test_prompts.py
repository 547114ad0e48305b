"""The prompt of a request: which can have one, and what becomes of messages that a template refuses."""

import json
from itertools import product

import pytest
from agents import ChatAgent, MessagesAgent, Told, assert_every_token_is_accounted_for, opened
from jinja2 import TemplateError
from native import DONE, asks
from native_families import FAMILIES, fitted_family

from atropos_agent.gateway import requests
from atropos_agent.gateway.bounds import Bounds
from atropos_agent.gateway.forest import Forest, HistoryMatch
from atropos_agent.gateway.prompts import Prompts, check_request
from atropos_agent.gateway.requests import GatewayRequest, Refusal
from atropos_agent.types import THINK, THINK_END


def refuses(*_, **__):
    raise TemplateError("roles must alternate")


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("v1/chat/completions", {"messages": []}, "messages: must hold a message"),
        ("v1/responses", {"input": []}, "input: must hold a message"),
        ("v1beta/models/m:generateContent", {"contents": []}, "contents: must hold a message"),
        (
            "v1/messages",
            {"messages": [], "thread": {"type": "continue", "previous_message_id": "msg_gw_7"}},
            "thread.previous_message_id: there is no response 7",
        ),
    ],
)
async def test_an_error_names_the_field_of_the_requests_own_protocol(fitted, path, body, expected):
    async with opened(fitted) as (client, _):
        with pytest.raises(Told, match=expected):
            await client.call(f"/{path}", body)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (GatewayRequest([]), "must hold a message"),
        (
            GatewayRequest(
                [requests.HistoryMessage("user", "go"), requests.HistoryMessage("assistant", "I")], continues=True
            ),
            "no reply is begun for the model; end with a message of the user's, or with results",
        ),
        (
            GatewayRequest([requests.HistoryMessage("user", "go")], forced={"tool_choice": "required"}),
            r"tolerates=\['tool_choice'\]",
        ),
    ],
)
def test_a_request_that_no_reply_can_follow_is_refused(request_, expected):
    with pytest.raises(Refusal, match=expected):
        check_request(request_, ())


def test_what_is_tolerated_is_no_reason():
    check_request(
        GatewayRequest([requests.HistoryMessage("user", "go")], forced={"tool_choice": "required"}), ("tool_choice",)
    )


async def test_a_conversation_that_the_template_refuses_is_the_agents_fault(fitted, monkeypatch):
    async with opened(fitted, [asks("one"), DONE]) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        reply = await agent.ask()
        agent.results(reply)
        with monkeypatch.context() as patched:
            patched.setattr(fitted.template, "continuation", refuses)
            with pytest.raises(Told, match="roles must alternate") as caught:
                await agent.ask()
        assert caught.value.status == 400
        await agent.ask()
        result = await client.session.result()
    assert len(result.segments) == 1
    assert_every_token_is_accounted_for(result, engine)


@pytest.mark.parametrize(
    "error", [TypeError("can only concatenate str"), KeyError("x"), IndexError(), AttributeError()]
)
async def test_what_a_template_can_not_do_with_an_agents_tools_is_the_agents_fault(smollm2_tokenizer, error):
    """gpt-oss' joins the descriptions of parameters to texts, for example."""

    class Raises:
        def __radd__(self, other):
            raise error

    fitted = fitted_family(smollm2_tokenizer, None, "Qwen3-Coder, by hand")
    template = fitted.template
    render = template.tokenizer.apply_chat_template

    def apply_chat_template(messages, *, tools, **options):
        return "" + Raises() if tools else render(messages, tools=tools, **options)

    async with opened(fitted, [DONE]) as (client, _):
        agent = ChatAgent(client)
        agent.user("go")
        template.tokenizer.apply_chat_template = apply_chat_template
        try:
            with pytest.raises(Told, match="chat template refuses them") as caught:
                await agent.ask()
        finally:
            template.tokenizer.apply_chat_template = render
        assert caught.value.status == 400
        agent.tools = []
        await agent.ask()
        assert (await client.session.result()).success


async def test_tokens_of_messages_that_the_template_refuses_are_not_counted_and_spoil_nothing(fitted, monkeypatch):
    async with opened(fitted, [asks("one"), DONE]) as (client, _):
        agent = MessagesAgent(client)
        agent.user("go")
        agent.results(await agent.ask())
        with monkeypatch.context() as patched:
            patched.setattr(fitted.template, "continuation", refuses)
            status, _, content = await client.call("/v1/messages/count_tokens", agent.request(), raises=False)
        assert status == 400
        assert "roles must alternate" in json.loads(content)["error"]["message"]
        await agent.ask()
        assert (await client.session.result()).success


def histories(controls):
    """Yield histories with each kind of reply that agents tell, and none of ours among them."""
    hostile = f"words {' '.join(controls)} more"
    for thinking, words, calls, then in product(
        (None, "hm", hostile), ("", hostile), (0, 1, 2), ("results", "a user", "results and a user", "a stray result")
    ):
        made = [requests.HistoryCall(f"c{n}", "say", {"text": f"said {n}"}) for n in range(calls)]
        results = [
            requests.HistoryMessage("tool", f"result {n}", call_id=f"c{n}") for n in range(calls) if "results" in then
        ]
        stray = [requests.HistoryMessage("tool", "result of another", call_id="other")] if "stray" in then else []
        yield [
            requests.HistoryMessage("user", "go"),
            *stray,
            requests.HistoryMessage("assistant", words or ("" if calls else "words"), made, thinking),
            *results,
            *([requests.HistoryMessage("user", "go on")] if then != "results" or not results else []),
        ]


@pytest.mark.parametrize("name", FAMILIES)
def test_no_reply_that_an_agent_tells_is_refused_by_a_template(fit, name):
    fitted = fit(name)
    prompts = Prompts(fitted.template, fitted, Forest(), keeps_thinking=False)
    controls = {*(fitted.template.decode([i]) for i in fitted.template._encoder.control_ids), *fitted.format.control}
    for messages in histories(sorted(controls - {THINK, THINK_END})[:20]):  # what stands before those is thinking
        line, *_ = prompts.place(GatewayRequest(messages), HistoryMatch(None, messages, ()), Bounds(1 << 20))
        shown = fitted.template.decode(line.conversation.prompt)
        for message in messages:
            assert all(call.arguments["text"] in shown for call in message.calls)
            assert message.role == "assistant" or message.text in shown
        assert "words" in shown or not any(message.text for message in messages if message.role == "assistant")


@pytest.mark.parametrize("name", ["mistral_v3", "gptoss", "Qwen3-Coder, by hand"])
async def test_a_call_of_ours_that_the_user_interrupts_is_context(fit, name):
    async with opened(fit(name), [asks("one"), DONE]) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        await agent.ask()
        agent.user("stop that")
        await agent.ask()
        result = await client.session.result()
    assert_every_token_is_accounted_for(result, engine)
