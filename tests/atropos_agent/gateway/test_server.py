"""The address: official clients, keys, and connections that misbehave."""

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager

import httpx
import pytest
from agents import SCHEMAS, NamingEngine, assert_every_token_is_accounted_for
from anthropic import AsyncAnthropic, BadRequestError
from native import DONE, Said, asks
from openai import AsyncOpenAI, AuthenticationError

from atropos_agent.gateway import Gateway
from atropos_agent.gateway.connection import Connection

PARAMETERS = SCHEMAS[0]["function"]["parameters"]
REPLIES = (asks("one", thinking="hm", content="First."), Said(spoiled="malformed"), asks("two"), DONE)


@asynccontextmanager
async def serving(fitted, replies=REPLIES, path=None, **config):
    engine = NamingEngine(fitted, replies)
    async with Gateway(path) as gateway, gateway.session(engine, fitted.template, fitted, **config) as session:
        yield gateway, session, engine


async def chat(session):
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key, max_retries=0) as client:
        messages = [{"role": "system", "content": "Be good."}, {"role": "user", "content": "go"}]
        while True:
            async with client.chat.completions.stream(model="m", messages=messages, tools=SCHEMAS) as stream:
                reply = (await stream.get_final_completion()).choices[0].message
            # What agents keep, without what the client has parsed for them.
            kept = reply.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
            for call in kept.get("tool_calls", ()):
                call["function"].pop("parsed_arguments", None)
            messages.append(kept)
            if not reply.tool_calls:
                return reply.content
            messages += [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in reply.tool_calls]


async def responses(session):
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key, max_retries=0) as client:
        tools = [{"type": "function", **schema["function"]} for schema in SCHEMAS]
        items = [{"role": "user", "content": "go"}]
        while True:
            async with client.responses.stream(model="m", instructions="Be good.", input=items, tools=tools) as stream:
                response = await stream.get_final_response()
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            items += [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls]


async def messages(session):
    async with AsyncAnthropic(base_url=session.anthropic_url, api_key=session.api_key, max_retries=0) as client:
        tools = [{"name": schema["function"]["name"], "input_schema": PARAMETERS} for schema in SCHEMAS]
        history = [{"role": "user", "content": "go"}]
        while True:
            options = {"model": "m", "max_tokens": 10_000, "messages": history, "tools": tools}
            async with client.messages.stream(**options) as stream:
                reply = await stream.get_final_message()
            blocks = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in reply.content]
            history.append({"role": "assistant", "content": blocks})
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                return reply.content[-1].text
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"} for call in calls]
            history.append({"role": "user", "content": results})


@pytest.mark.parametrize("agent", [chat, responses, messages])
async def test_official_clients_work_unchanged(fitted, agent):
    # Anthropic's client raises for arguments that are no JSON.
    replies = [reply for reply in REPLIES if agent is not messages or not reply.spoiled]
    async with serving(fitted, replies) as (_, session, engine):
        assert await agent(session) == "done"
        result = await session.result()
    assert len(result.segments) == 1
    assert_every_token_is_accounted_for(result, engine)


async def test_errors_are_the_clients_own(fitted):
    async with serving(fitted) as (gateway, session, _):
        async with AsyncOpenAI(base_url=session.base_url, api_key="other", max_retries=0) as client:
            with pytest.raises(AuthenticationError):
                await client.models.list()
        async with AsyncAnthropic(base_url=gateway.address, api_key=session.api_key, max_retries=0) as client:
            assert [model.id for model in (await client.models.list()).data] == ["gateway"]
            with pytest.raises(BadRequestError, match="messages"):
                await client.messages.create(model="m", max_tokens=5, messages=[])


async def test_one_rollout_can_not_go_on_with_anothers_conversation(fitted):
    async with serving(fitted, [asks("one"), DONE]) as (gateway, first, engine):
        async with gateway.session(engine, fitted.template, fitted) as second:
            body = {"messages": [{"role": "user", "content": "go"}], "tools": SCHEMAS}
            async with httpx.AsyncClient() as client:
                told = await post(client, first, body)
                reply = told.json()["choices"][0]["message"]
                call = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "ok"}
                await post(client, second, {**body, "messages": [*body["messages"], reply, call]})
            await first.result()
            # What the other rollout sampled is context here, as the agent told it.
            (row,) = (await second.result()).segments
            assert row.turns == 1
        async with httpx.AsyncClient() as client:
            assert (await post(client, second, body)).status_code == 401


async def post(client, session, body):
    headers = {"authorization": f"Bearer {session.api_key}"}
    return await client.post(f"{session.base_url}/chat/completions", json=body, headers=headers)


@pytest.mark.parametrize(
    ("name", "value"),
    [("authorization", "Bearer {}"), ("authorization", "bearer  {}"), ("authorization", "{}"), ("x-api-key", "{}")],
)
async def test_a_key_may_come_in_each_spelling(fitted, name, value):
    async with serving(fitted, []) as (_, session, _), httpx.AsyncClient() as client:
        models = f"{session.base_url}/models"
        assert (await client.get(models, headers={name: value.format(session.api_key)})).status_code == 200
        assert (await client.get(models, headers={name: value.format("other")})).status_code == 401
        assert (await client.get(models, headers={name: f"Basic {session.api_key}"})).status_code == 401


async def test_a_key_may_come_in_the_query_as_googles_does(fitted):
    async with serving(fitted, []) as (_, session, _), httpx.AsyncClient() as client:
        models = f"{session.anthropic_url}/v1beta/models?alt=sse&key="
        assert (await client.get(models + session.api_key)).status_code == 200
        assert (await client.get(models + "other")).status_code == 401
        assert (await client.get(f"{models}other", headers={"x-api-key": session.api_key})).status_code == 200
        assert (await client.get(models + session.api_key, headers={"x-api-key": "other"})).status_code == 401


async def test_a_unix_socket_is_its_owners_alone(fitted, tmp_path):
    path = tmp_path / "gateway.sock"
    async with serving(fitted, [DONE], path=path) as (_, session, _):
        assert path.stat().st_mode & 0o777 == 0o600
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path))) as client:
            told = await post(client, session, {"messages": [{"role": "user", "content": "go"}]})
        assert told.json()["choices"][0]["message"]["content"] == "done"
    assert not path.exists()


async def request(session, body):
    """A connection on which a request was sent, and nothing read."""
    host, port = session.anthropic_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1)
    content = json.dumps(body).encode()
    lines = ["POST /v1/messages HTTP/1.1", "Host: x", f"x-api-key: {session.api_key}"]
    lines.append(f"Content-Length: {len(content)}")
    writer.write("\r\n".join([*lines, "", ""]).encode() + content)
    return reader, writer


async def test_an_answer_whose_last_bytes_are_not_read_was_not_taken(fitted):
    async with serving(fitted, [Said(content="word " * 50_000)]) as (_, session, engine):
        body = {"messages": [{"role": "user", "content": "go"}], "stream": True}
        reader, writer = await request(session, body)
        await reader.readexactly(10)
        # The rest is in the socket, and is thrown away with it.
        writer.get_extra_info("socket").setsockopt(1, 13, struct.pack("ii", 1, 0))
        writer.transport.abort()
        async with httpx.AsyncClient(timeout=30) as client:
            headers = {"x-api-key": session.api_key}
            told = await client.post(f"{session.base_url}/messages", json={**body, "stream": False}, headers=headers)
        result = await session.result()
    assert told.json()["content"][0]["text"].startswith("word")
    assert len(engine.exchanges) == 1
    assert result.metadata["gateway"]["changes"] == {"answer repeated": 1}


async def test_an_answer_was_taken_where_its_client_closes_behind_the_last_event(fitted, monkeypatch):
    lost = asyncio.Event()
    monkeypatch.setattr(Connection, "connection_lost", told_of(Connection.connection_lost, lost))

    def ask(address, body, key):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            content = json.dumps(body).encode()
            head = (
                f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {key}\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            connection.sendall(head.encode() + content)
            told = b""
            while not told.endswith(b'"message_stop"}\n\n'):
                told += connection.recv(1)
        # Closed with bytes unread, it is reset.

    async with serving(fitted, [DONE]) as (_, session, _):
        body = {"messages": [{"role": "user", "content": "go"}], "stream": True}
        await asyncio.to_thread(ask, session.anthropic_url, body, session.api_key)
        await asyncio.wait_for(lost.wait(), 30)
        result = await session.result()
    assert result.metadata["gateway"]["branches"] == {"main": 1}


def told_of(method, event):
    """A method that sets an event when it is over."""

    def called(*given):
        method(*given)
        event.set()

    return called


async def test_a_head_that_does_not_come_is_not_waited_for(fitted, monkeypatch):
    monkeypatch.setattr(Connection, "head_s", 0.05)
    async with serving(fitted) as (gateway, _, _):
        host, port = gateway.address.removeprefix("http://").split(":")
        for begun in (b"", b"POST /v1/messages HTTP/1.1\r\nx-slow: "):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(begun)
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()


async def test_a_head_has_a_limit(fitted):
    async with serving(fitted) as (gateway, _, _):
        host, port = gateway.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n" + b"x: " + b"a" * 70_000)
        assert b" 400 " in await asyncio.wait_for(reader.read(), 10)
        writer.close()


@pytest.mark.parametrize("line", ["POST /v1/nothing", "POST /v1/messages", "GET /v1/models", "PUT /"])
async def test_a_body_that_is_not_read_is_not_waited_for(fitted, line):
    async with serving(fitted) as (gateway, session, _):
        key = session.api_key if "messages" not in line else "other"
        host, port = gateway.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"{line} HTTP/1.1\r\nHost: x\r\nx-api-key: {key}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
        writer.write(head.encode())
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 ")
        writer.close()
