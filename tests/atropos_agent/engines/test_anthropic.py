"""Anthropic's Messages as the model: what is sent, what is read, what passes and what doesn't."""

import pytest
from werkzeug import Response

from atropos_agent.engines import chat
from atropos_agent.engines.anthropic import AnthropicServer, read, request
from atropos_agent.engines.errors import ContextOverflow, ModelNotServed, NotThisServer, OddAnswer, Refused
from atropos_agent.tokens.chat import read_chat
from envs.options import EngineConfig

ANSWER = {
    "type": "message",
    "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "It is 4."}],
    "stop_reason": "max_tokens",
    "usage": {"input_tokens": 9, "output_tokens": 5},
}


@pytest.fixture
async def server(httpserver, monkeypatch):
    monkeypatch.setattr(chat, "wait_exponential", lambda **_: lambda _state: 0.0)
    url = httpserver.url_for("/v1")
    server = AnthropicServer(EngineConfig(base_url=url, server_type="anthropic", model_name="m", api_key="secret"))
    yield server
    await server.close()


def ask(server):
    return server.chat_completion(messages=[{"role": "user", "content": "2 + 2?"}], max_tokens=9, temperature=1.0)


def test_a_request_says_what_openais_would():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "tool", "content": "c"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "d"},
    ]
    given = {"max_tokens": 7, "temperature": 1.5, "top_p": 0.9, "stop": ["x"]}
    assert request("m", {"messages": messages, **given}) == {
        "model": "m",
        "max_tokens": 7,
        "temperature": 1.0,
        "top_p": 0.9,
        "system": "Be brief.",
        "stop_sequences": ["x"],
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c\n\nd"},
        ],
    }


async def test_a_reply_is_read_with_its_thinking(server, httpserver):
    httpserver.expect_request("/v1/messages", headers={"x-api-key": "secret"}).respond_with_json(ANSWER)
    completion = read_chat(await ask(server))
    assert (completion.text, completion.finish_reason) == ("<think>\nHm.\n</think>\n\nIt is 4.", "length")
    assert server.sampled == 1


async def test_what_passes_is_asked_again(server, httpserver):
    httpserver.expect_ordered_request("/v1/messages").respond_with_json({"error": {"message": "busy"}}, 529)
    httpserver.expect_ordered_request("/v1/messages").respond_with_data("<html>", 200)
    httpserver.expect_ordered_request("/v1/messages").respond_with_json(ANSWER)
    assert read_chat(await ask(server)).text


@pytest.mark.parametrize(
    ("status", "message", "error", "times"),
    [
        (401, "invalid x-api-key", Refused, 2),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", ContextOverflow, 1),
    ],
)
async def test_what_does_not_pass_is_said_at_once(server, httpserver, status, message, error, times):
    requests = []

    def answer(request):
        requests.append(request)
        return Response(message, status)

    httpserver.expect_request("/v1/messages").respond_with_handler(answer)
    with pytest.raises(error):
        await ask(server)
    assert len(requests) == times
    assert [request.headers.get("X-Api-Key") for request in requests] == ["secret", None][:times]


async def test_the_key_is_a_bearers_where_it_is_refused_otherwise(server, httpserver):
    """So are the keys of vLLM."""
    own = httpserver.expect_request("/v1/messages", headers={"X-Api-Key": "secret"})
    own.respond_with_json({"error": "Unauthorized"}, 401)
    bearer = httpserver.expect_request("/v1/messages", headers={"Authorization": "Bearer secret"})
    bearer.respond_with_json(ANSWER)
    await ask(server)
    await ask(server)
    assert len(httpserver.log) == 3


async def test_a_model_that_is_not_there_and_a_wrong_key_are_told_at_the_start(server, httpserver):
    httpserver.expect_request("/v1/models").respond_with_json({"data": [{"id": "one"}, {"id": "two"}]})
    httpserver.expect_oneshot_request("/v1/messages").respond_with_json({"error": {"message": "model: m"}}, 404)
    with pytest.raises(ModelNotServed, match=r"model: m.*set --openai\.model_name to one of one, two"):
        await server.connect()
    for _ in range(2):
        wrong = httpserver.expect_oneshot_request("/v1/messages")
        wrong.respond_with_json({"error": {"message": "bad x-api-key"}}, 401)
    with pytest.raises(NotThisServer, match=r"bad x-api-key.*set --openai\.api_key to its key$"):
        await server.connect()
    httpserver.expect_oneshot_request("/v1/messages").respond_with_json(ANSWER)
    await server.connect()
    assert server.sampled == 0, "what is asked at the start is no reply to a rollout"


@pytest.mark.parametrize("answer", [{}, [], {"content": [{"type": "text"}]}, {**ANSWER, "usage": 3}])
def test_what_is_no_message_is_refused(answer):
    with pytest.raises(OddAnswer, match="no message"):
        read(answer, "the endpoint")


def test_an_answer_needs_no_usage_and_may_end_at_the_models_window():
    answer = read({**ANSWER, "usage": None, "stop_reason": "model_context_window_exceeded"}, "the endpoint")
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 0)


async def test_the_place_that_an_endpoint_points_to_is_named(server, httpserver):
    onward = {"Location": "https://elsewhere.example/v1/messages"}
    httpserver.expect_request("/v1/messages").respond_with_data("", 308, onward)
    with pytest.raises(Refused, match=r"308 and points to https://elsewhere\.example.*; set --openai\.base_url"):
        await ask(server)
