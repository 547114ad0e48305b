"""A plain OpenAI-compatible endpoint as the model: its replies, its own words where it refuses, what the start asks."""

import asyncio
import gzip
import json
import threading
import time

import pytest
from waiting import in_time
from werkzeug import Response

from atropos_agent.engines import chat
from atropos_agent.engines.errors import ContextOverflow, EngineDown, ModelNotServed, NotThisServer, Refused
from atropos_agent.engines.protocols import open_server
from atropos_agent.engines.replies import check_chat_answer
from atropos_agent.tokens.chat import ChatLog, read_chat
from envs.options import EngineConfig

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}
ANSWER = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}
WRONG_KEY = {"error": {"message": "Incorrect API key provided: x", "code": "invalid_api_key"}}
QUESTION = [{"role": "user", "content": "2 + 2?"}]


class Endpoint:
    """An endpoint that answers one request after the other, the last answer again and again. requests: their bodies."""

    def __init__(self, httpserver, monkeypatch):
        monkeypatch.setattr(chat, "wait_exponential", lambda **_: lambda _state: 0.0)
        self.answers, self.requests = [(ANSWER, 200)], []
        self.url = httpserver.url_for("/v1")
        self.server = httpserver
        httpserver.expect_request("/v1/chat/completions").respond_with_handler(self._answer)

    def lists(self, *models, status=200):
        data = {"object": "list", "data": [{"id": model, "object": "model"} for model in models]}
        self.server.expect_request("/v1/models").respond_with_json(data if status == 200 else WRONG_KEY, status)

    def opened(self, model="m", key="x"):
        return open_server(EngineConfig(base_url=self.url, server_type="openai", model_name=model, api_key=key))

    def _answer(self, request):
        self.requests.append(request.get_json())
        body, status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Response(json.dumps(body), status, {"x-should-retry": "false"}, content_type="application/json")


@pytest.fixture
def endpoint(httpserver, monkeypatch):
    return Endpoint(httpserver, monkeypatch)


async def test_replies_are_counted_and_carry_no_ids(endpoint):
    async with endpoint.opened() as server:
        completion = read_chat(await server.chat_completion(messages=QUESTION))
        assert (completion.text, completion.ids, server.sampled) == ("four", (), 1)
        await server.chat_completion(messages=QUESTION, split="eval")
        assert (len(server.request_timings), len(server.eval_request_timings)) == (1, 1)
        assert await server.load() is None


async def test_a_refusal_is_said_at_once_in_the_servers_own_words(endpoint):
    endpoint.answers = [(WRONG_KEY, 401)]
    async with endpoint.opened() as server:
        with pytest.raises(Refused, match=r"answered 401: Incorrect API key provided: x$"):
            await server.chat_completion(messages=QUESTION)
    assert len(endpoint.requests) == 1


async def test_what_passes_is_asked_again_and_at_last_said_in_the_servers_own_words(endpoint):
    busy = {"error": {"message": "You are too fast"}}, 429
    endpoint.answers = [busy, busy, (ANSWER, 200)]
    async with endpoint.opened() as server:
        assert await server.chat_completion(messages=QUESTION)
        endpoint.answers = [busy]
        with pytest.raises(EngineDown, match="429: You are too fast"):
            await server.chat_completion(messages=QUESTION)
    assert len(endpoint.requests) == 3 + chat.LIMITED_TRIES


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (7500 in the "
            "messages, 1500 in the completion).",
            [1500, 692],
        ),
        ("input length and `max_tokens` exceed context limit: 199,000 + 1500 > 200,000, decrease it", [1500, 1000]),
        (
            "'max_tokens' is too large: 1500. This model's maximum context length is 8192 tokens and your request has "
            "7000 input tokens (1500 > 8192 - 7000).",
            [1500, 1192],
        ),
        ("The context window is full", [1500, 750]),
    ],
)
async def test_a_reply_has_as_many_tokens_as_the_window_has_room_for(endpoint, text, limits):
    endpoint.answers = [({"error": {"message": text}}, 400)] * (len(limits) - 1) + [(ANSWER, 200)]
    async with endpoint.opened() as server:
        assert await server.chat_completion(messages=QUESTION, max_tokens=1500)
    assert [asked["max_tokens"] for asked in endpoint.requests] == limits


async def test_a_full_window_is_named_in_the_servers_own_words(endpoint):
    full = {"error": {"message": "The context window is full"}}, 400
    endpoint.answers = [full]
    async with endpoint.opened() as server:
        with pytest.raises(ContextOverflow, match="The context window is full"):
            await server.chat_completion(messages=QUESTION, max_tokens=5)
        assert [asked["max_tokens"] for asked in endpoint.requests] == [5, 2, 1]
        endpoint.answers = [full, ({"error": {"message": "Expected a value >= 16"}}, 400)]
        with pytest.raises(ContextOverflow, match="The context window is full"):
            await server.chat_completion(messages=QUESTION, max_tokens=5)
        endpoint.requests.clear()
        text = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
        endpoint.answers = [({"error": {"message": text}}, 400)]
        with pytest.raises(ContextOverflow, match="resulted in 9000 tokens"):
            await server.chat_completion(messages=QUESTION, max_tokens=1500)
        assert len(endpoint.requests) == 1


async def test_a_server_that_is_away_is_named():
    config = EngineConfig(base_url="http://localhost:1/v1", server_type="openai", model_name="m")
    async with open_server(config) as server:
        with pytest.raises(EngineDown, match=r"the endpoint at http://localhost:1/v1 did not answer"):
            await server.connect()


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic"])
@pytest.mark.parametrize(
    ("key", "raised", "first"),
    [("", NotThisServer, "give --openai.api_key_var or"), ("x", EngineDown, "the endpoint at")],
)
async def test_a_hosted_model_that_cannot_be_reached_is_not_waited_for_without_a_key(kind, key, raised, first):
    config = EngineConfig(base_url="https://localhost:1/v1", server_type=kind, model_name="m", api_key=key)
    async with open_server(config) as server:
        with pytest.raises(raised, match=rf"^{first}"):
            await server.connect()


async def test_a_local_server_needs_no_key(endpoint):
    async with endpoint.opened(key="") as server:
        await server.connect()
        assert read_chat(await server.chat_completion(messages=QUESTION)).text == "four"


@pytest.mark.parametrize("key", ["", "x"])
async def test_a_wrong_key_is_told_at_the_start_with_the_option(endpoint, key):
    endpoint.answers = [(WRONG_KEY, 401)]
    async with endpoint.opened(key=key) as server:
        with pytest.raises(NotThisServer, match=r"Incorrect API key.*set --openai\.api_key to its key") as caught:
            await server.connect()
    assert ("none was given" in str(caught.value)) is (key == "")


async def test_a_model_that_it_does_not_have_is_told_at_the_start_with_those_that_it_has(endpoint):
    endpoint.answers = [({"error": {"message": "The model `m` does not exist"}}, 404)]
    endpoint.lists(*(f"gpt-{n}" for n in range(12)))
    async with endpoint.opened() as server:
        with pytest.raises(ModelNotServed, match=r"`m` does not exist; set .* to one of gpt-0, .* and 2 more"):
            await server.connect()


async def test_a_model_that_is_not_listed_is_taken_where_it_answers(endpoint):
    endpoint.lists("another")
    async with endpoint.opened() as server:
        await server.connect()


@pytest.mark.parametrize(
    ("models", "status", "expected"),
    [
        (["a", "b"], 200, r"no model is named; set --openai\.model_name to one of a, b of"),
        ([], 200, r"no model is named; set --openai\.model_name to a model of"),
        ([], 404, r"no model is named; set --openai\.model_name to a model of"),
        ([], 401, r"set --openai\.api_key to its key"),
    ],
)
async def test_a_model_that_is_not_named_is_asked_for(endpoint, models, status, expected):
    endpoint.lists(*models, status=status)
    async with endpoint.opened("default") as server:
        with pytest.raises((ModelNotServed, NotThisServer), match=expected):
            await server.connect()
    assert endpoint.requests == []


async def test_the_only_model_need_not_be_named(endpoint):
    endpoint.lists("mine")
    async with endpoint.opened("default") as server:
        await server.connect()
    assert endpoint.requests[0]["model"] == "mine"


async def test_another_refusal_of_the_first_request_is_told_in_the_servers_own_words(endpoint):
    endpoint.lists("m")
    endpoint.answers = [({"error": {"message": "Use 'max_completion_tokens' instead"}}, 400)]
    async with endpoint.opened() as server:
        with pytest.raises(NotThisServer, match="400: Use 'max_completion_tokens' instead; it refuses what every"):
            await server.connect()


async def test_an_answer_that_is_no_completion_is_odd(endpoint):
    endpoint.server.clear()
    endpoint.server.expect_request("/v1/chat/completions").respond_with_data("<html>", content_type="text/html")
    async with endpoint.opened() as server:
        with pytest.raises(EngineDown, match=r"no completion: '<html>'$"):
            await server.chat_completion(messages=QUESTION)
        with pytest.raises(NotThisServer, match=r"'<html>'; set --openai\.base_url"):
            await server.connect()
    endpoint.server.clear()
    endpoint.server.expect_request("/v1/chat/completions").respond_with_json({**ANSWER, "choices": []})
    async with endpoint.opened() as server:
        with pytest.raises(EngineDown, match="no completion: ChatCompletion"):
            await server.chat_completion(messages=QUESTION)


@pytest.mark.parametrize(
    "choice",
    [
        None,
        "four",
        {"finish_reason": "stop"},
        {**CHOICE, "message": None},
        {**CHOICE, "message": {"role": "assistant", "tool_calls": [None]}},
        {**CHOICE, "message": {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {}}]}},
    ],
)
async def test_a_reply_that_is_none_is_asked_for_again(endpoint, choice):
    endpoint.answers = [({**ANSWER, "choices": [choice]}, 200), (ANSWER, 200)]
    async with endpoint.opened() as server:
        assert read_chat(await server.chat_completion(messages=QUESTION)).text == "four"
    assert len(endpoint.requests) == 2


async def test_requests_side_by_side_learn_the_limits_name_each(endpoint):
    def answer(request):
        body = request.get_json()
        asked.append(body)
        time.sleep(0.2)  # so that both are under way
        refused = {"error": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens' instead."}}
        told, status = (refused, 400) if "max_tokens" in body else (ANSWER, 200)
        return Response(json.dumps(told), status, content_type="application/json")

    asked = []
    endpoint.server.clear()
    endpoint.server.expect_request("/v1/chat/completions").respond_with_handler(answer)
    async with endpoint.opened() as server:
        await asyncio.gather(*(server.chat_completion(messages=QUESTION, max_tokens=9) for _ in range(2)))
    assert len(asked) == 4


async def test_a_limit_that_is_refused_names_its_option(endpoint):
    endpoint.answers = [({"error": {"message": "max_tokens is too large: 9. This model supports at most 4"}}, 400)]
    async with endpoint.opened() as server:
        with pytest.raises(Refused, match=r"at most 4; set --env\.max_reply_tokens"):
            await server.chat_completion(messages=QUESTION, max_tokens=9)


async def test_long_pauses_are_logged_once_a_minute(endpoint, monkeypatch, caplog):
    monkeypatch.setattr(chat, "LONG_S", 0.0)
    endpoint.answers = [*[({"error": {"message": "You are too fast"}}, 429)] * 3, (ANSWER, 200)]
    async with endpoint.opened() as server:
        await server.chat_completion(messages=QUESTION)
    (line,) = [record.message for record in caplog.records if record.name == chat.logger.name]
    assert line.endswith("You are too fast; the next try is in 0 s")


async def test_who_asks_for_no_pause_for_ever_is_not_asked_without_one(httpserver):
    answer = Response(json.dumps({"error": {"message": "busy"}}), 429, {"Retry-After": "0"})
    httpserver.expect_request("/v1/chat/completions").respond_with_handler(lambda _: answer)
    config = EngineConfig(base_url=httpserver.url_for("/v1"), server_type="openai", model_name="m", api_key="x")
    async with open_server(config) as server:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.chat_completion(messages=QUESTION), 1.0)
    assert len(httpserver.log) <= 3


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_without_end_is_none(endpoint, monkeypatch, packed):
    content = json.dumps({**ANSWER, "id": "x" * 2_000_000}).encode()
    headers = {"Content-Type": "application/json"} | ({"Content-Encoding": "gzip"} if packed else {})
    answer = Response(gzip.compress(content) if packed else content, 200, headers)
    endpoint.server.clear()
    endpoint.server.expect_request("/v1/chat/completions").respond_with_handler(lambda _: answer)
    async with endpoint.opened() as server:
        assert read_chat(await server.chat_completion(messages=QUESTION)).text == "four"
        monkeypatch.setattr(chat, "LARGEST", 1_000_000)
        with pytest.raises(EngineDown, match="it answered with more than 1000000 bytes"):
            await server.connect()


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"[" * 100_000, {}),
        (gzip.compress(gzip.compress(json.dumps(ANSWER).encode())), {"Content-Encoding": "gzip, gzip"}),
    ],
)
async def test_what_no_endpoint_answers_is_no_answer(endpoint, content, headers):
    answer = Response(content, 200, {"Content-Type": "application/json", **headers})
    endpoint.server.clear()
    endpoint.server.expect_request("/v1/chat/completions").respond_with_handler(lambda _: answer)
    async with endpoint.opened() as server:
        with pytest.raises(EngineDown, match=r"no completion|compressed several times"):
            await server.chat_completion(messages=QUESTION)


async def test_a_server_does_not_send_requests_elsewhere(endpoint):
    elsewhere = endpoint.url.replace("/v1", "/elsewhere")
    asked = []
    endpoint.server.clear()
    endpoint.server.expect_request("/v1/chat/completions").respond_with_data("", 307, {"Location": elsewhere})
    endpoint.server.expect_request("/elsewhere").respond_with_handler(
        lambda request: asked.append(request) or Response()
    )
    async with endpoint.opened() as server:
        with pytest.raises(Refused, match=r"answered 307 and points to \S+/elsewhere; set --openai\.base_url"):
            await server.chat_completion(messages=QUESTION)
    assert len(endpoint.server.log) == 1


async def test_an_error_is_utf8_whatever_its_header_says(endpoint):
    answer = Response("caf-dma", 401, {"Content-Type": "text/plain; charset=punycode"})
    endpoint.server.clear()
    endpoint.server.expect_request("/v1/chat/completions").respond_with_handler(lambda _: answer)
    async with endpoint.opened() as server:
        with pytest.raises(Refused, match=r"401: caf-dma$"):
            await server.chat_completion(messages=QUESTION)


async def test_senseless_usage_counts_nothing(endpoint):
    senseless = [10**400, -5, True, 1e400, float("nan")]
    endpoint.answers = [
        ({**ANSWER, "usage": {"prompt_tokens": one, "completion_tokens": one, "cost": one}}, 200) for one in senseless
    ]
    async with endpoint.opened() as server:
        for _ in senseless:
            assert read_chat(await server.chat_completion(messages=QUESTION)).used in (None, (0, 0))
        assert (server.usage.input, server.usage.output, server.usage.cost) == (0, 0, None)


async def test_a_failure_without_words_is_named_by_its_kind(endpoint):
    config = EngineConfig(base_url=endpoint.url, server_type="openai", model_name="m", timeout=1)
    endpoint.server.clear()
    given_up = threading.Event()
    endpoint.server.expect_request("/v1/chat/completions").respond_with_handler(lambda _: given_up.wait(60) and None)
    async with open_server(config) as server:
        with pytest.raises(EngineDown, match="did not answer: ReadTimeout"):
            await server.connect()
    given_up.set()
    assert in_time(lambda: endpoint.server.log), "else it would stand in the next test's"


CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}, "extra_content": {"google": 1}}
THOUGHT = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Hm."}


async def test_thinking_and_signatures_go_back_with_their_calls_until_they_are_refused(endpoint):
    """DeepSeek and Gemini refuse the next request without them; Groq refuses what others want."""
    choice = {"index": 0, "message": THOUGHT, "finish_reason": "tool_calls"}
    refused = {"error": {"message": "messages.1: property 'reasoning_content' is unsupported"}}, 400
    endpoint.answers = [({**ANSWER, "choices": [choice]}, 200), (ANSWER, 200), refused, (ANSWER, 200)]
    async with endpoint.opened() as server:
        log = ChatLog([*QUESTION], [])
        log.add_reply(read_chat(await server.chat_completion(messages=log.messages)))
        assert "Hm." not in json.dumps(log.plain_messages()[-1]["tool_calls"])
        assert "extra_content" not in json.dumps(log.plain_messages())
        for _ in range(2):
            await server.chat_completion(messages=log.messages)
        assert server.left_out == ["reasoning_content"]
    sent = [request["messages"][1] for request in endpoint.requests[1:]]
    assert [message.get("reasoning_content") for message in sent] == ["Hm.", "Hm.", None]
    assert all(message["tool_calls"] == [CALL] for message in sent)


@pytest.mark.parametrize(("reason", "expected"), [("model_length", "length"), ("end_turn", "stop"), ("STOP", "stop")])
async def test_reasons_of_other_providers_have_openais_names(endpoint, reason, expected):
    endpoint.answers = [({**ANSWER, "choices": [{**CHOICE, "finish_reason": reason}]}, 200)]
    async with endpoint.opened() as server:
        assert check_chat_answer(await server.chat_completion(messages=QUESTION)).finish_reason == expected


@pytest.mark.parametrize(
    ("kind", "path", "end"),
    [
        *[("openai", "chat/completions", ""), ("responses", "responses", ""), ("anthropic", "messages", "")],
        *[("openai", "chat/completions", "/chat/completions"), ("anthropic", "messages", "/messages")],
    ],
)
async def test_an_address_may_have_a_query_and_requests_headers_of_the_users(httpserver, kind, path, end):
    """So is Azure's; it is also pasted with the path of the request."""
    wanted = {"headers": {"Api-Key": "k"}, "query_string": "api-version=1"}
    httpserver.expect_request(f"/d/v1/{path}", **wanted).respond_with_data("<html>")
    url = httpserver.url_for(f"/d/v1{end}?api-version=1")
    config = EngineConfig(base_url=url, server_type=kind, model_name="m", headers={"api-key": "k"})
    async with open_server(config) as server:
        with pytest.raises(NotThisServer, match=r"<html>"):
            await server.connect()
    ((request, _),) = httpserver.log
    assert "Authorization" not in request.headers
    assert "X-Api-Key" not in request.headers


async def test_an_error_in_an_answer_of_200_has_the_meaning_of_its_code(endpoint):
    endpoint.answers = [({"error": {"code": 402, "message": "Insufficient credits"}}, 200)]
    async with endpoint.opened() as server:
        with pytest.raises(Refused, match="answered 402: Insufficient credits"):
            await server.chat_completion(messages=QUESTION)


@pytest.mark.parametrize("text", ["API key not valid. Please pass a valid API key.", "No connected db."])
async def test_a_wrong_key_is_known_by_its_words(endpoint, text):
    endpoint.answers = [({"error": {"message": text}}, 400)]
    async with endpoint.opened() as server:
        with pytest.raises(NotThisServer, match=r"set --openai\.api_key to its key"):
            await server.connect()


async def test_a_missing_path_is_named_with_the_options_that_change_it(httpserver):
    httpserver.expect_request("/v1/models").respond_with_json({"data": [{"id": "other"}]})
    httpserver.expect_request("/chat/completions").respond_with_data("404 page not found", status=404)
    httpserver.expect_request("/v1/responses").respond_with_data("Not Found", status=404)
    for kind, expected in (
        ("openai", rf"{httpserver.url_for('/chat/completions')} was asked: .* \(such as .*/v1\)"),
        (
            "responses",
            r"/v1/responses was asked: set --openai\.model_name, --openai\.base_url or --openai\.server_type",
        ),
    ):
        config = EngineConfig(base_url=httpserver.url_for(""), server_type=kind, model_name="m")
        async with open_server(config) as server:
            with pytest.raises(NotThisServer, match=expected):
                await server.connect()


async def test_a_failure_without_a_key_says_so(httpserver):
    httpserver.expect_request("/v1/messages").respond_with_data("Internal Server Error", status=500)
    config = EngineConfig(base_url=httpserver.url_for("/v1"), server_type="anthropic", model_name="m")
    async with open_server(config) as server:
        with pytest.raises(EngineDown, match=r"no key was given: name its variable with --openai\.api_key_var"):
            await server.connect()
