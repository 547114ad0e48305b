"""A connection of an agent's: how long a head may take, and what was not taken."""

import asyncio

import pytest
import uvicorn
from agents import opened
from native import DONE
from uvicorn.server import ServerState

from atropos_agent.gateway.app import UNTAKEN
from atropos_agent.gateway.connection import Connection

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Client(asyncio.Transport):
    """What a connection writes to."""

    def __init__(self):
        super().__init__()
        self.answered, self.closed = asyncio.Event(), asyncio.Event()

    def write(self, data):
        self.answered.set()

    def close(self):
        self.closed.set()

    abort = close

    def is_closing(self):
        return self.closed.is_set()

    def pause_reading(self):
        pass

    resume_reading = pause_reading


@pytest.fixture
async def connected():
    """A connection, its client, and how often an answer was found not to be taken."""
    untaken = []

    async def app(scope, receive, send):
        scope.setdefault("extensions", {})[UNTAKEN] = lambda: untaken.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, interface="asgi3", lifespan="off", ws="none", log_config=None)
    config.load()
    connection, client = Connection(config, ServerState(), {}), Client()
    return connection, client, untaken


@pytest.mark.parametrize(("size", "closed"), [(1, True), (100, False)])
async def test_very_many_small_chunks_close_the_connection(connected, size, closed):
    connection, client, _ = connected
    connection.connection_made(client)
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    connection.data_received(b"%x\r\n%s\r\n" % (size, b"a" * size) * (30_000 // (size + 5)))
    assert client.closed.is_set() is closed
    connection.connection_lost(None)


async def test_a_head_that_does_not_come_closes_the_connection(connected, monkeypatch):
    connection, client, _ = connected
    monkeypatch.setattr(Connection, "head_s", 0.01)
    connection.connection_made(client)
    connection.data_received(HEAD[:-2])
    await asyncio.wait_for(client.closed.wait(), 10)
    connection.connection_lost(None)


async def test_a_connection_may_rest_between_requests(connected, monkeypatch):
    connection, client, _ = connected
    connection.connection_made(client)
    connection.data_received(HEAD)
    await asyncio.wait_for(client.answered.wait(), 10)
    assert connection._late is None
    assert not client.closed.is_set()
    connection.connection_lost(None)


@pytest.mark.parametrize(("error", "untaken"), [(None, []), (ConnectionResetError(), ["/"])])
async def test_an_answer_was_not_taken_where_its_client_reset_the_connection(connected, error, untaken):
    connection, client, found = connected
    connection.connection_made(client)
    connection.data_received(HEAD)
    await asyncio.wait_for(client.answered.wait(), 10)
    connection.connection_lost(error)
    assert found == untaken


WRONG = {
    "no HTTP": [b"\0" * 100],
    "an upgrade": [b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"],
    "a body that is none, after its answer": [
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"zz\r\n",
    ],
}


@pytest.mark.parametrize("kind", WRONG)
async def test_what_is_wrong_with_requests_stands_in_no_log_and_is_no_exception(connected, caplog, kind):
    connection, client, _ = connected
    connection.connection_made(client)
    for part in WRONG[kind]:
        connection.data_received(part)
        await asyncio.wait_for(client.answered.wait(), 10)
    assert client.closed.is_set() == (kind != "an upgrade")
    assert not caplog.records
    connection.connection_lost(None)


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_a_client_that_has_closed_its_connection_has_not_taken_what_is_written_then(fitted, stream):
    """The transport drops what is written, and says that the connection is lost without an error."""
    async with opened(fitted, [DONE]) as (client, engine):
        config = uvicorn.Config(client.session.handle, interface="asgi3", lifespan="off", ws="none", log_config=None)
        config.load()
        body = b'{"messages": [{"role": "user", "content": "go"}], "stream": %s}' % stream.encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        engine.gate.clear()
        for waited in (0.1, 0.0):  # the second time the answer is there already
            connection = Connection(config, ServerState(), {})
            connection.connection_made(Client())
            connection.data_received(head + body)
            await asyncio.sleep(waited)
            engine.gate.set()
            connection.eof_received()
            await asyncio.sleep(0.1)
            connection.connection_lost(None)
            assert [turn.taken for turn, _ in client.session.turns] == [False]
        await client.session.result()
