"""The HTTP door: connections that are served by whichever session works now."""

import asyncio

import httpx

from envs.agents.entrance import Entrance


class Session:
    def __init__(self, name):
        self.name = name

    async def handle(self, scope, receive, send):
        body = f"{self.name} {scope['method']} {scope['path']}".encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def test_a_request_goes_to_the_session_that_works_now():
    entrance = Entrance()
    server = await asyncio.get_running_loop().create_server(entrance, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert (await client.get("/v1/models")).status_code == 410
        for name in ("first", "second"):
            entrance.session = Session(name)
            assert (await client.post("/v1/x", content=b"{}")).text == f"{name} POST /v1/x"
        entrance.session = None
        assert (await client.get("/")).status_code == 410
    server.close()


async def test_an_answer_that_was_cut_off_is_told_as_not_taken():
    untaken = []

    class Untaken(Session):
        async def handle(self, scope, receive, send):
            scope.setdefault("extensions", {})["atropos.untaken"] = lambda: untaken.append(self.name)
            await super().handle(scope, receive, send)

    entrance = Entrance()
    entrance.session = Untaken("one")
    for error in (None, ConnectionResetError()):
        connection = entrance()
        transport = Sink()
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while not transport.data.endswith(b"one GET /"):  # noqa: ASYNC110
            await asyncio.sleep(0)
        connection.connection_lost(error)
    assert untaken == ["one"]


class Sink(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.data = b""

    def write(self, data):
        self.data += data

    def close(self):
        pass

    def is_closing(self):
        return False

    def resume_reading(self):
        pass
