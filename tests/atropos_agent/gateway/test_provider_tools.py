"""Tools that a provider has named and the client runs: shown with a schema, called, and answered."""

import json

import pytest
from agents import AGENTS, Told, assert_every_token_is_accounted_for, opened
from native import DONE, Said

from atropos_agent.gateway.provider_tools import anthropics, is_screen, openais

MESSAGES = [
    ({"type": "bash_20250124", "name": "bash"}, {"command": "ls"}),
    ({"type": "bash_20241022", "name": "bash"}, {"restart": True}),
    (
        {"type": "text_editor_20250124", "name": "str_replace_editor"},
        {"command": "view", "path": "/a", "view_range": [1, -1]},
    ),
    (
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 100},
        {"command": "insert", "path": "/a", "insert_line": 0, "insert_text": "x"},
    ),
    ({"type": "memory_20250818", "name": "memory"}, {"command": "rename", "old_path": "/a", "new_path": "/b"}),
]
RESPONSES = [
    (
        {"type": "local_shell"},
        {"command": ["ls", "-l"], "working_directory": "/"},
        {"type": "local_shell_call", "action": {"type": "exec", "env": {}}},
        {"type": "local_shell_call_output", "output": '{"output": "PRINTED"}'},
    ),
    (
        {"type": "shell", "environment": {"type": "local"}},
        {"commands": ["ls", "pwd"]},
        {"type": "shell_call", "action": {"timeout_ms": None, "max_output_length": None}},
        {
            "type": "shell_call_output",
            "output": [{"stdout": "PRINTED", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}}],
        },
    ),
    (
        {"type": "apply_patch"},
        {"type": "update_file", "path": "a", "diff": "@@ -1 +1 @@"},
        {"type": "apply_patch_call", "operation": {}},
        {"type": "apply_patch_call_output", "status": "failed", "output": "PRINTED"},
    ),
]


@pytest.fixture
def kimi(fit):
    """A family whose calls are JSON, which holds lists as well."""
    return fit("Kimi K2, by hand")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("tool", "arguments"), MESSAGES)
async def test_anthropics_are_shown_and_called_by_their_names(kimi, tool, arguments, stream):
    async with opened(kimi, [Said(((tool["name"], arguments),)), DONE]) as (client, engine):
        agent = AGENTS["messages"](client, tools=(), stream=stream)
        body = agent.request
        agent.request = lambda: body() | {"tools": [tool]}
        agent.user("go")
        reply = await agent.ask()
        (called,) = [block for block in reply["content"] if block["type"] == "tool_use"]
        assert (called["name"], called["input"]) == (tool["name"], arguments)
        agent.results(reply, "PRINTED")
        await agent.ask()
        result = await client.session.result()
    shown = kimi.template.decode(engine.exchanges[0].prompt)
    assert f'"name": "{tool["name"]}"' in shown and '"command"' in shown
    assert len(result.segments) == 1
    assert_every_token_is_accounted_for(result, engine)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("tool", "arguments", "item", "output"), RESPONSES)
async def test_openais_are_called_by_items_of_their_own(kimi, tool, arguments, item, output, stream):
    async with opened(kimi, [Said(((tool["type"], arguments),)), DONE]) as (client, engine):
        agent = AGENTS["responses"](client, stream=stream)
        body = agent.request
        agent.request = lambda: body() | {"tools": [tool]}
        agent.user("go")
        (called,) = await agent.ask()
        key = "operation" if "operation" in item else "action"
        assert called["type"] == item["type"] and called[key] == {**item[key], **arguments}
        number = {"id" if tool["type"] == "local_shell" else "call_id": called["call_id"]}
        agent.history.append({**output, **number})
        await agent.ask()
        result = await client.session.result()
    assert "PRINTED" in kimi.template.decode(engine.exchanges[1].prompt)
    assert "PRINTED" in result.steps[0].results[0].content
    assert len(result.segments) == 1
    assert_every_token_is_accounted_for(result, engine)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_that_takes_text_is_called_with_text_in_chat_too(kimi, stream):
    tool = {"type": "custom", "custom": {"name": "patch", "description": "Patch.", "format": {"type": "text"}}}
    async with opened(kimi, [Said((("patch", {"input": "*** a"}),)), DONE]) as (client, _):
        agent = AGENTS["chat"](client, tools=[tool], stream=stream)
        agent.user("go")
        reply = await agent.ask()
        (called,) = reply["tool_calls"]
        assert (called["type"], called["custom"]) == ("custom", {"name": "patch", "input": "*** a"})
        agent.results(reply)
        await agent.ask()
        assert len((await client.session.result()).segments) == 1


@pytest.mark.parametrize(
    ("kind", "tool", "why"),
    [
        ("messages", {"type": "web_search_20250305", "name": "web_search"}, "is run by a provider"),
        ("messages", {"type": "code_execution_20250825", "name": "code_execution"}, "is run by a provider"),
        ("messages", {"type": "computer_20250124", "name": "computer"}, "shows a screen"),
        ("responses", {"type": "shell", "environment": {"type": "container_auto"}}, "is run by a provider"),
        ("responses", {"type": "code_interpreter", "container": {"type": "auto"}}, "is run by a provider"),
        ("responses", {"type": "computer_use_preview"}, "shows a screen"),
        ("chat", {"type": "web_search"}, "is run by a provider"),
    ],
)
async def test_those_that_the_provider_runs_are_refused(fitted, kind, tool, why):
    async with opened(fitted) as (client, _):
        agent = AGENTS[kind](client)
        agent.user("go")
        with pytest.raises(Told, match=why):
            await client.call(agent.path, agent.request() | {"tools": [tool]})


def test_a_date_tells_no_other_tool():
    assert anthropics("bash_20990101") is anthropics("bash_20250124")
    assert anthropics("bash_code_execution_20250825") is None
    assert openais({"type": "shell"}) is openais({"type": "shell", "environment": {"type": "local"}})
    assert is_screen("computer_20241022") and not is_screen("computers")
    json.dumps([anthropics("memory_20250818"), openais({"type": "apply_patch"})])
