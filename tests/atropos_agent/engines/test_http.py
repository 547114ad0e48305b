"""Requests over kept connections: whole answers, or NoAnswer with its cause."""

import asyncio
import gzip
import json
import math
from contextlib import asynccontextmanager

import httpx
import pytest
from aiohttp import web

from atropos_agent.engines import http
from atropos_agent.engines.http import HttpClient, NoAnswer, Response, dump_json, proxy_of


@asynccontextmanager
async def served(answer, *, path="", headers=None, timeout_s=5.0, credentials=""):
    """A client of a server that answers every request by `answer`, and the server's connections."""
    connections = set()

    async def handle(request):
        connections.add(request.transport.get_extra_info("peername"))
        return await answer(request)

    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{rest:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    client = HttpClient(f"http://{credentials}127.0.0.1:{port}{path}", headers=headers, timeout_s=timeout_s)
    try:
        yield client, connections
    finally:
        await client.aclose()
        await runner.cleanup()


async def echo(request):
    return web.json_response(
        {"path": request.path, "body": (await request.read()).decode(), "headers": dict(request.headers)}
    )


async def test_what_is_asked_arrives_and_connections_are_used_again():
    async with served(echo, path="/there", headers={"Authorization": "Bearer k"}) as (client, connections):
        for _ in range(3):
            received = (await client.post("/v1", json={"prompt": [1, 2]})).json()
        assert received["path"] == "/there/v1"
        assert json.loads(received["body"]) == {"prompt": [1, 2]}
        assert received["headers"]["Content-Type"] == "application/json"
        assert received["headers"]["Authorization"] == "Bearer k"
        assert len(connections) == 1


async def test_as_many_requests_as_there_are_go_out_at_once():
    arrived, everybody = [], asyncio.Event()

    async def wait_for_all(request):
        arrived.append(request)
        if len(arrived) == 300:
            everybody.set()
        await everybody.wait()
        return web.Response(text="{}")

    async with served(wait_for_all) as (client, _):
        answers = await asyncio.gather(*(client.post("/", json={}) for _ in range(300)))
        assert {answer.status_code for answer in answers} == {200}


async def test_the_name_and_password_in_an_address_stand_for_the_key():
    async with served(echo, credentials="me:secret@", headers={"Authorization": "Bearer k"}) as (client, _):
        assert (await client.get("/")).json()["headers"]["Authorization"].startswith("Basic ")


async def test_a_body_of_megabytes_is_sent_without_a_warning():
    async with served(echo) as (client, _):
        received = (await client.post("/", json={"prompt": list(range(300_000))})).json()
        assert len(json.loads(received["body"])["prompt"]) == 300_000


async def test_a_redirect_and_an_error_are_answers_like_any_other():
    async def elsewhere(request):
        return web.Response(status=307 if request.path == "/moved" else 503, headers={"Location": "/x"}, text="busy")

    async with served(elsewhere) as (client, _):
        assert (await client.get("/moved")).status_code == 307
        answer = await client.get("/")
        assert (answer.status_code, answer.text) == (503, "busy")


async def test_a_compressed_answer_is_read():
    async def compressed(request):
        return web.Response(body=gzip.compress(b'{"a": 1}'), headers={"Content-Encoding": "gzip"})

    async with served(compressed) as (client, _):
        assert (await client.get("/")).json() == {"a": 1}


async def test_no_connection_a_broken_one_and_silence_are_no_answer():
    async def break_off(request):
        if request.path == "/silent":
            await asyncio.sleep(30)
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        if request.path == "/half":
            await response.write(b"half")
        request.transport.close()
        return response

    async with served(break_off, timeout_s=0.3) as (client, _):
        for path, limit in (("/half", None), ("/nothing", None), ("/silent", None), ("/silent", 0.1)):
            with pytest.raises(NoAnswer):
                await client.get(path, timeout=limit)
    gone = HttpClient("http://127.0.0.1:9", timeout_s=1.0)
    with pytest.raises(NoAnswer, match=r"^Connection refused$"):
        await gone.get("/")
    await gone.aclose()
    nonsense = HttpClient("http://[::x/", timeout_s=1.0)
    with pytest.raises(NoAnswer):
        await nonsense.get("/")
    await nonsense.aclose()


async def test_the_server_is_told_that_a_request_was_given_up():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(request):
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    async with served(work) as (client, _):
        asking = asyncio.create_task(client.post("/", json={}))
        await begun.wait()
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        await asyncio.wait_for(ended.wait(), 5)


def test_json_that_only_python_takes_is_read_as_well():
    body = Response(200, b'{"logprobs": [NaN, -Infinity], "text": "\\ud83d"}').json()
    assert math.isnan(body["logprobs"][0])
    assert body["text"] == "\ud83d"
    for body in (b"<html>", b"[" * 100_000):
        with pytest.raises(ValueError):
            Response(200, body).json()


def test_whatever_python_reads_as_json_is_written():
    assert dump_json({"a": ["\ud83d", "ä"]}) == '{"a":["?","ä"]}'.encode()
    assert dump_json([10**30]) == b"[1" + b"0" * 30 + b"]"
    deep = b"[" * 300 + b"]" * 300
    assert dump_json(json.loads(deep)) == deep


async def test_text_is_utf8_whatever_a_header_says():
    async def strange(request):
        return web.Response(body=b"caf-dma", headers={"Content-Type": "text/plain; charset=punycode"})

    async with served(strange) as (client, _):
        assert (await client.get("/")).text == "caf-dma"
    assert Response(200, b"caf\xe9").text == "caf\ufffd"


async def test_an_answer_compressed_several_times_is_not_unpacked():
    async def packed(request):
        return web.Response(body=gzip.compress(gzip.compress(b"{}")), headers={"Content-Encoding": "gzip, gzip"})

    async with served(packed) as (client, _), http.client_of(client._url) as other:
        with pytest.raises(httpx.DecodingError, match="several times"):
            await other.get("/")


def test_the_environment_says_by_which_proxy_a_server_is_reached(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    assert proxy_of("http://far:80") is None
    monkeypatch.setenv("http_proxy", "http://user:word@proxy:3128")
    monkeypatch.setenv("no_proxy", "near,127.0.0.1")
    assert proxy_of("http://far:80/v1") == "http://user:word@proxy:3128"
    assert proxy_of("https://far") is None
    assert proxy_of("http://near:9001") is None
    assert proxy_of("http://127.0.0.1:9001") is None
    monkeypatch.setenv("all_proxy", "http://other:1")
    assert proxy_of("https://far") == "http://other:1"


async def test_requests_go_by_way_of_the_proxy(monkeypatch):
    async with served(echo) as (proxy, _):
        monkeypatch.setenv("http_proxy", proxy._url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        client = HttpClient("http://somewhere.invalid", timeout_s=2.0)
        assert (await client.get("/v1/models")).json()["headers"]["Host"] == "somewhere.invalid"
        await client.aclose()


@pytest.mark.parametrize("proxy", ["http://user:word@127.0.0.1:9", "::::", "socks5://127.0.0.1:9"])
async def test_where_a_proxy_stands_in_the_way_it_is_named(monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    client = HttpClient("http://127.0.0.1:9", timeout_s=2.0)
    expected = f"by way of the proxy {proxy.rpartition('@')[2]} .*NO_PROXY"
    with pytest.raises(NoAnswer, match=expected) as caught:
        await client.get("/v1/models")
    assert "word" not in str(caught.value)
    assert ("a proxy is given as http://HOST:PORT" in str(caught.value)) == (not proxy.startswith("http"))
    await client.aclose()


def test_unused_connections_end_before_the_servers_end_them():
    assert http.KEPT_S < 5.0


async def test_an_answer_of_endless_values_is_none(monkeypatch):
    async def endless(request):
        return web.Response(body=b"[" + b"[]," * 1000 + b"[]]")

    monkeypatch.setattr(http, "MOST_VALUES", 1000)
    async with served(endless) as (client, _):
        with pytest.raises(NoAnswer, match="more than 1000 values"):
            await client.get("/")


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_without_end_is_none(monkeypatch, packed):
    async def endless(request):
        body = b" " * 3_000_000
        headers = {"Content-Encoding": "gzip"} if packed else {}
        return web.Response(body=gzip.compress(body) if packed else body, headers=headers)

    monkeypatch.setattr(http, "LARGEST", 1_000_000)
    async with served(endless) as (client, _):
        with pytest.raises(NoAnswer, match="more than 1000000 bytes"):
            await client.get("/")
