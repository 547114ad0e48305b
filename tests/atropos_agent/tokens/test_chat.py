"""Engines without token ids: the loop is the same, and no rows are made up."""

import json
from types import SimpleNamespace

import pytest
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from pytest_httpserver import HTTPServer

from atropos_agent.agent import AtroposAgent
from atropos_agent.formats.native import read_native
from atropos_agent.tokens.chat import read_chat
from atropos_agent.types import EngineError, StopReason
from tools.base import ToolRegistry


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'


def reply(**message):
    message = {"role": "assistant", "content": "", **message}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


@pytest.mark.parametrize(
    "first", [{"content": CALL}, {"reasoning": CALL}, {"reasoning_content": CALL}, {"content": None, "reasoning": CALL}]
)
async def test_replies_are_read_from_content_or_from_reasoning(httpserver: HTTPServer, first):
    httpserver.expect_ordered_request("/v1/chat/completions").respond_with_json(reply(**first))
    httpserver.expect_ordered_request("/v1/chat/completions").respond_with_json(reply(content="It is 3."))
    config = APIServerConfig(base_url=httpserver.url_for("/v1"), api_key="x", model_name="m", health_check=False)
    result = await AtroposAgent(OpenAIServer(config), ToolRegistry([add])).run("Add 1 and 2.")
    assert result.stop_reason is StopReason.ANSWERED
    assert result.final_response == "It is 3."
    assert result.steps[0].results[0].content == "3"
    assert result.segments == ()
    (_, last) = [json.loads(request.data) for request, _ in httpserver.log]
    assert last["messages"][-1]["content"] == "<tool_response>\n3\n</tool_response>"


PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]


@pytest.mark.parametrize("message", [{"content": "yes", "reasoning": "hm"}, {"content": PARTS}])
def test_thinking_beside_content_is_kept_as_thinking(message):
    message = SimpleNamespace(**message)
    completion = read_chat(SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")]))
    assert completion.text == "<think>\nhm\n</think>\n\nyes"


@pytest.mark.parametrize("reasoning", [{"summary": "hm"}, ["hm"], 5])
def test_thinking_and_endings_that_are_no_text_are_no_part_of_a_reply(reasoning):
    message = SimpleNamespace(content="yes", reasoning=reasoning)
    completion = read_chat(
        SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason={"type": "length"})])
    )
    assert (completion.text, completion.finish_reason) == ("yes", "length")
    assert read_native(completion.message, 0).thinking is None


@pytest.mark.parametrize("given", ['{"a": "é"}', {"a": "é"}])
def test_arguments_are_json_also_where_a_server_gives_the_object(given):
    call = SimpleNamespace(id="x", function=SimpleNamespace(name="add", arguments=given))
    message = SimpleNamespace(content=None, tool_calls=[call])
    completion = read_chat(SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")]))
    assert read_native(completion.message, 0).calls[0].arguments == {"a": "é"}


def test_no_reply_is_our_failure():
    with pytest.raises(EngineError, match="no reply"):
        read_chat(SimpleNamespace(choices=[]))


async def test_a_reply_of_hidden_thoughts_alone_is_asked_to_be_shorter(httpserver: HTTPServer):
    cut = reply()
    cut["choices"][0]["finish_reason"], cut["usage"] = "length", {"prompt_tokens": 9, "completion_tokens": 64}
    httpserver.expect_ordered_request("/v1/chat/completions").respond_with_json(cut)
    httpserver.expect_ordered_request("/v1/chat/completions").respond_with_json(reply(content="It is 3."))
    config = APIServerConfig(base_url=httpserver.url_for("/v1"), api_key="x", model_name="m", health_check=False)
    result = await AtroposAgent(OpenAIServer(config), ToolRegistry([add])).run("Add 1 and 2.")
    assert (result.final_response, result.num_steps) == ("It is 3.", 2)
    assert "cut off after 64 tokens; be shorter" in result.messages[-2]["content"]
