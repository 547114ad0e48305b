"""Requests as they come over HTTP: broken, huge, slow, cut off."""

import asyncio
import json

import pytest
from agents import AGENTS, ChatAgent, Told, opened
from native import DONE, Said

from atropos_agent.gateway import app
from atropos_agent.types import EngineError

GO = [{"role": "user", "content": "go"}]
STREAMED = {
    "chat/completions": {"messages": GO},
    "messages": {"messages": GO},
    "responses": {"input": GO},
    "models/m:streamGenerateContent": {"contents": [{"role": "user", "parts": [{"text": "go"}]}]},
}
"""A body for each protocol, by its path."""


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b'"x"', b"\xff", b"[" * 100_000, b'{"a": "\\ud'])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_a_body_that_is_no_object_is_an_error_in_the_protocols_shape(fitted, path, content):
    async with opened(fitted) as (client, _):
        with pytest.raises(Told) as caught:
            await client.call(path, None, content=content)
    assert caught.value.status == 400
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert (caught.value.body.get("type") == "error") == (path == "/v1/messages")


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [1], [{}], [{"role": 1}], [{"role": "bot", "content": "x"}]])
@pytest.mark.parametrize(
    ("path", "field"), [("chat/completions", "messages"), ("messages", "messages"), ("responses", "input")]
)
async def test_wrong_types_are_named(fitted, path, field, value):
    if (path, value) == ("responses", "x"):
        return  # which is a message there
    async with opened(fitted, [DONE]) as (client, engine):
        with pytest.raises(Told) as caught:
            await client.call(f"/v1/{path}", {field: value})
    assert caught.value.status == 400
    assert not engine.options


async def test_half_of_a_surrogate_pair_is_replaced(fitted):
    async with opened(fitted, [DONE]) as (client, engine):
        content = b'{"messages": [{"role": "user", "content": "cut \\ud83d"}], "model": "\\ud83d"}'
        await client.call("/v1/chat/completions", None, content=content)
    assert "cut \ufffd" in fitted.template.decode(engine.exchanges[0].prompt)


async def test_a_body_in_another_encoding_is_refused_by_name(fitted):
    sent = []

    async def send(message):
        sent.append(message)

    async with opened(fitted) as (client, _):
        headers = [(b"content-encoding", b"zstd")]
        scope = {"type": "http", "method": "POST", "path": "/v1/messages", "headers": headers}
        await client.session.handle(scope, asyncio.Event().wait, send)
    assert sent[0]["status"] == 400
    assert "content-encoding" in json.loads(sent[1]["body"])["error"]["message"]


@pytest.mark.parametrize("value", ['{"a": ' * 98 + "1" + "}" * 98, "7" * 70], ids=["deep", "large"])
@pytest.mark.parametrize("makes", AGENTS.values())
async def test_whatever_json_the_model_writes_is_told(fitted, makes, value):
    call = f'<tool_call>\n{{"name": "say", "arguments": {{"text": {value}}}}}\n</tool_call>'
    async with opened(fitted, [Said(content=call), DONE]) as (client, _):
        agent = makes(client)
        agent.user("go")
        agent.results(await agent.ask())
        await agent.ask()
        assert len((await client.session.result()).segments) == 1


async def test_a_body_of_endless_values_is_not_taken_apart(fitted, monkeypatch):
    monkeypatch.setattr(app, "MOST_VALUES", 1000)
    bodies, sent = [b'{"messages": [' + b"[]," * 1000 + b"[]]}"], []

    async def receive():
        if not bodies:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(message):
        sent.append(message)

    async with opened(fitted) as (client, _):
        scope = {"type": "http", "method": "POST", "path": "/v1/messages", "headers": []}
        await asyncio.wait_for(client.session.handle(scope, receive, send), 20)
    assert sent[0]["status"] == 413 and b"more than 1000 values" in sent[1]["body"]


async def test_a_body_has_a_limit_and_is_not_read_beyond_it(fitted, monkeypatch):
    monkeypatch.setattr(app, "MAX_BODY", 1000)
    pulled, sent = 0, []

    async def receive():
        nonlocal pulled
        pulled += 1
        return {"type": "http.request", "body": b"x" * 400, "more_body": True}

    async def send(message):
        sent.append(message)

    async with opened(fitted) as (client, _):
        scope = {"type": "http", "method": "POST", "path": "/v1/messages", "headers": []}
        await client.session.handle(scope, receive, send)
    assert pulled == 3
    assert sent[0]["status"] == 413
    assert (b"connection", b"close") in sent[0]["headers"]
    assert json.loads(sent[1]["body"])["error"]["type"] == "request_too_large"


async def test_a_body_that_does_not_come_is_not_waited_for(fitted, monkeypatch):
    monkeypatch.setattr(app, "BODY_S", 0.02)
    sent = []

    async def send(message):
        sent.append(message)

    async with opened(fitted) as (client, _):
        scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": []}
        await client.session.handle(scope, asyncio.Event().wait, send)
    assert sent[0]["status"] == 408


async def test_a_client_that_takes_nothing_is_not_waited_for(fitted, monkeypatch):
    monkeypatch.setattr(app, "SEND_S", 0.02)

    async def stuck(message):
        await asyncio.Event().wait()

    async with opened(fitted, [DONE]) as (client, _):
        agent = ChatAgent(client)
        agent.user("go")
        body = json.dumps(agent.request()).encode()
        scope = {"type": "http", "method": "POST", "path": agent.path, "headers": []}
        given = [{"type": "http.request", "body": body}]

        async def receive():
            return given.pop() if given else await asyncio.Event().wait()

        await client.session.handle(scope, receive, stuck)
        assert (await agent.ask())["content"] == "done"
        result = await client.session.result()
    assert result.metadata["gateway"]["changes"] == {"answer repeated": 1}


@pytest.mark.parametrize("kind", STREAMED)
async def test_a_stream_shows_that_it_lives_while_it_is_sampled(fitted, monkeypatch, kind):
    monkeypatch.setattr(app, "PING_S", 0.01)
    async with opened(fitted, [DONE]) as (client, engine):
        engine.gate.clear()
        twice = app.protocol_of(kind).ping * 2
        body = {"stream": True, **STREAMED[kind]}
        _, headers, content = await client.call(
            f"/v1/{kind}", body, seen=lambda told: told.startswith(twice) and engine.gate.set()
        )
    assert headers[b"content-type"] == b"text/event-stream"
    assert b"done" in content


@pytest.mark.parametrize("kind", STREAMED)
async def test_a_failure_in_a_stream_is_its_last_event(fitted, monkeypatch, kind):
    monkeypatch.setattr(app, "PING_S", 0.01)
    async with opened(fitted, []) as (client, engine):

        async def late(**_):
            await asyncio.sleep(0.03)
            raise EngineError("it is gone")

        engine.tokens_and_logprobs_completion = late
        body = {"stream": True, **STREAMED[kind]}
        _, _, content = await client.call(f"/v1/{kind}", body)
        last = json.loads(content.decode().strip().rpartition("data: ")[2])
        assert "it is gone" in json.dumps(last)
        with pytest.raises(EngineError):
            await client.session.result()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/any", 200),
        ("GET", "/v1/files", 404),
        ("POST", "/v1/embeddings", 404),
        ("DELETE", "/v1/messages", 404),
    ],
)
async def test_what_else_is_asked_for(fitted, method, path, status):
    async with opened(fitted) as (client, _):
        found, _, content = await client.call(path, {}, method=method, raises=False)
    assert found == status
    assert method != "HEAD" or not content
    assert status != 404 or b"replies come from POST /v1/chat/completions" in content


async def test_tokens_are_counted_without_sampling(fitted):
    async with opened(fitted, [DONE, DONE]) as (client, engine):
        agent = ChatAgent(client, tools=())
        agent.user("go")
        await agent.ask()
        agent.user("more")
        body = {"messages": agent.history[1:], "system": agent.history[0]["content"]}
        counted = json.loads((await client.call("/v1/messages/count_tokens", body))[2])
        assert len(engine.exchanges) == 1
        await agent.ask()
    assert counted == {"input_tokens": len(engine.exchanges[1].prompt)}


async def test_a_failure_of_the_gateway_is_told_and_spoils_the_rollout(fitted, monkeypatch):
    async with opened(fitted, [DONE]) as (client, _):
        monkeypatch.setattr(client.session._forest, "locate", lambda _: 1 / 0)
        agent = ChatAgent(client)
        agent.user("go")
        with pytest.raises(Told) as caught:
            await agent.ask()
        assert caught.value.status == 500
        with pytest.raises(Exception, match="ZeroDivisionError"):
            await client.session.result()
