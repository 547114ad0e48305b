"""Answers of a server as exceptions."""

import asyncio
import contextlib

import pytest
from aiohttp import ClientPayloadError, ClientSession, web
from aiohttp.test_utils import TestClient, TestServer

from sandboxes.base import DaemonRefused, SandboxDied, SandboxError, SandboxUnreachable
from sandboxes.remote import api


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (401, "Unauthorized", DaemonRefused),
        (403, "pods is forbidden: User cannot create", DaemonRefused),
        (403, 'pods "a" is forbidden: exceeded quota: boxes', api.QuotaExceeded),
        (404, "not found", SandboxDied),
        (409, "already exists", api.Conflict),
        (410, "too old resource version", api.Expired),
        (422, "is invalid", SandboxError),
        (429, "too many requests", api.Busy),
        (500, "etcdserver: leader changed", api.Busy),
    ],
)
def test_each_refusal_is_told_apart(status, message, error):
    assert type(api.failure(status, message, "POST pods")) is error


def test_an_outage_is_told_once_and_the_next_one_again(monkeypatch):
    outage, now = api._Outage(), [0.0]
    monkeypatch.setattr(api.time, "monotonic", lambda: now[0])
    told = []
    for now[0] in (0, 3, 6, 9, 60, 115, 200, 206):
        if outage.should_report():
            told.append(now[0])
    assert told == [6, 206], "a single refusal is nothing; a minute of calm ends an outage"


@pytest.mark.parametrize("size", [5, 5000])
async def test_an_answer_is_utf8_and_has_an_end(monkeypatch, size):
    async def answer(request):
        return web.Response(
            body=b"caf-dma"[:size] * (size // 5), headers={"Content-Type": "text/plain; charset=punycode"}
        )

    monkeypatch.setattr(api, "_LARGEST", 1000)
    app = web.Application()
    app.router.add_get("/", answer)
    async with TestClient(TestServer(app)) as client, client.get("/") as got:
        if size == 5:
            assert await api.text_of(got) == "caf-d"
        else:
            with pytest.raises(ClientPayloadError, match="more than 1000 bytes"):
                await api.text_of(got)


async def test_what_cannot_be_reached_in_time_is_a_failure_of_its_own():
    class Silent(api.Api):
        name, remedy = "server", ""

        async def _headers(self):
            return {}

    async def fail():
        raise api.Busy("exec in a: error dialing backend (HTTP 500)")

    with pytest.raises(SandboxUnreachable, match="can't be reached: exec in a: error dialing backend"):
        await Silent(None, "http://a").retry_inside(fail, 0.1)


class Named(api.Api):
    name, remedy, address = "server", "", "--url"

    async def _headers(self):
        return {"X-API-Key": "secret"}


@contextlib.asynccontextmanager
async def asked(answer):
    """A server with this answer, and the way to it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server, ClientSession() as http:
        yield Named(http, str(server.make_url("")).rstrip("/"))


async def test_nobody_is_given_the_key_because_the_server_says_so():
    seen = []

    async def other(request):
        seen.append(request.headers.get("X-API-Key"))
        return web.json_response([])

    async with asked(other) as elsewhere:

        async def answer(request):
            raise web.HTTPTemporaryRedirect(elsewhere._root + request.path)

        async with asked(answer) as server:
            with pytest.raises(DaemonRefused, match=rf"redirects to {elsewhere._root}/boxes; .* its address as --url"):
                await server.request("POST", "/boxes", {})
    assert not seen


@pytest.mark.parametrize("pause", ["100000", "9" * 400, "\u00b2"])
async def test_a_server_that_names_a_pause_is_waited_for_no_longer_than_was_said(pause):
    async def answer(request):
        return web.json_response({"message": "later"}, status=429, headers={"Retry-After": pause})

    async with asked(answer) as server, asyncio.timeout(5):
        with pytest.raises(api.Busy, match="later"):
            await server.retry(lambda: server.request("GET", "/boxes"), 0.2)
