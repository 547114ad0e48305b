"""Answers of a server as exceptions."""

import pytest
from aiohttp import ClientPayloadError, web
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
