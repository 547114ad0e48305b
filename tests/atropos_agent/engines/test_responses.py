"""OpenAI's Responses: what is sent, and what an answer is read as."""

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.engines.errors import OddAnswer
from atropos_agent.engines.responses import ResponsesServer

RAW = [{"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}]


@pytest.fixture
def server():
    return ResponsesServer(APIServerConfig(base_url="http://127.0.0.1:9/v1", model_name="m", api_key="k"))


def test_messages_are_items_and_nothing_is_stored(server):
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        {"role": "assistant", "content": "3", "raw": RAW},
    ]
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    body = server.request({"messages": messages, "max_tokens": 7, "tools": [tool], "temperature": 0.5})
    assert body == {
        "model": "m",
        "input": [
            {"role": "system", "content": "s"},
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "3"},
            *RAW,
        ],
        "store": False,
        "stream": False,
        "temperature": 0.5,
        "max_output_tokens": 7,
        "tools": [{"type": "function", "strict": False, "name": "add", "parameters": {"type": "object"}}],
    }


def answer(*output, **more):
    return {"output": list(output), "usage": {"input_tokens": 4, "output_tokens": 2}, **more}


TEXT = {"type": "message", "content": [{"type": "output_text", "text": "3"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
REFUSAL = {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}


@pytest.mark.parametrize(
    ("given", "content", "reason"),
    [
        (answer(TEXT), "3", "stop"),
        (answer(TEXT, CALL), "3", "tool_calls"),
        (answer(TEXT, incomplete_details={"reason": "max_output_tokens"}), "3", "length"),
        (answer(REFUSAL), "", "content_filter"),
        (answer(TEXT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "3", "length"),
        (answer(TEXT, status="in_progress"), "3", "in_progress"),
    ],
)
def test_an_answer_has_the_shape_of_a_chat_completion(server, given, content, reason):
    read = server.read(given)
    (choice,) = read.choices
    assert (choice.message.content, choice.finish_reason) == (content, reason)
    assert (read.usage.prompt_tokens, read.usage.completion_tokens) == (4, 2)


@pytest.mark.parametrize("odd", [{}, {"output": [{}]}, {"output": None}, [], "text"])
def test_something_else_is_no_answer(server, odd):
    with pytest.raises(OddAnswer):
        server.read(odd)


def test_reasoning_alone_does_not_go_back(server):
    (thought,), (whole,) = (server.read(answer(*output)).choices for output in (RAW, (*RAW, TEXT)))
    assert (hasattr(thought.message, "raw"), whole.message.raw) == (False, [*RAW, TEXT])
