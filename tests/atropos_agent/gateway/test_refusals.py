"""What is refused by name, in each protocol."""

import pytest
from agents import AGENTS, ChatAgent, Told, opened
from native import DONE

IMAGE = {"type": "image_url", "image_url": {"url": "http://example.com/x.png"}}
CHAT = {
    "n": 2,
    "logit_bias": {"5": 1},
    "logprobs": True,
    "functions": [{"name": "x"}],
    "continue_final_message": True,
    "modalities": ["audio"],
    "web_search_options": {"search_context_size": "low"},
    "web_search": True,
    "enable_search": True,
    "search_parameters": {"mode": "on"},
    "plugins": [{"id": "web"}],
    "data_sources": [{"type": "azure_search"}],
    "tools": [{"type": "web_search"}],
    "tool_choice": "required",
    "response_format": {"type": "json_schema", "json_schema": {}},
    "messages": [{"role": "user", "content": [IMAGE]}],
}
OLD = {
    "function_call": {"name": "say", "arguments": "{}"},
    "audio": {"id": "audio_1"},
    "prefix": True,
    "partial": True,
}
"""What an assistant's message may say beside its content."""
RESPONSES = {
    "background": True,
    "conversation": "conv_1",
    "prompt": {"id": "pmpt_1"},
    "tools": [{"type": "mcp", "server_url": "http://example.com"}],
    "tool_choice": {"type": "function", "name": "say"},
    "text": {"format": {"type": "json_object"}},
    "input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://example.com"}]}],
    "previous_response_id": "resp_gw_7",
}
MESSAGES = {
    "mcp_servers": [{"type": "url", "url": "http://example.com"}],
    "container": "c",
    "tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}],
    "tool_choice": {"type": "any"},
    "output_format": {"type": "json_schema"},
    "messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "http://e.com"}}]}],
    "system": [{"type": "image"}],
}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *(("chat", *one) for one in CHAT.items()),
        ("chat", "web_search_options", {}),
        *(("responses", *one) for one in RESPONSES.items()),
        *(("messages", *one) for one in MESSAGES.items()),
    ],
)
async def test_what_cant_be_honoured_is_refused_by_name(fitted, kind, field, value):
    async with opened(fitted, [DONE]) as (client, engine):
        agent = AGENTS[kind](client)
        agent.user("go")
        with pytest.raises(Told) as caught:
            await client.call(agent.path, agent.request() | {field: value})
    assert caught.value.status == 400
    assert field.split("_")[0] in caught.value.body["error"]["message"]
    assert not engine.options


@pytest.mark.parametrize("field", OLD)
async def test_what_a_message_says_beside_its_content_is_refused_and_not_left_out(fitted, field):
    async with opened(fitted, [DONE]) as (client, _):
        agent = ChatAgent(client)
        agent.history.append({"role": "assistant", "content": None, field: OLD[field]})
        agent.user("go")
        with pytest.raises(Told, match=field):
            await agent.ask()


@pytest.mark.parametrize("field", ["n", "logit_bias", "logprobs", "functions", "web_search_options"])
async def test_what_asks_for_nothing_is_not_refused(fitted, field):
    async with opened(fitted, [DONE]) as (client, _):
        agent = ChatAgent(client, **{field: None})
        agent.user("go")
        await agent.ask()


async def test_a_session_may_tolerate_what_is_not_forced(fitted):
    async with opened(fitted, [DONE], tolerates=["tool_choice"]) as (client, _):
        agent = ChatAgent(client, tool_choice="required")
        agent.user("go")
        await agent.ask()
        result = await client.session.result()
    assert result.metadata["gateway"]["not_followed"] == {"tool_choice": 1}


async def test_tools_that_must_not_be_called_are_not_shown(fitted):
    async with opened(fitted, [DONE]) as (client, engine):
        agent = ChatAgent(client, tool_choice="none")
        agent.user("go")
        await agent.ask()
    assert "say" not in fitted.template.decode(engine.exchanges[0].prompt)
