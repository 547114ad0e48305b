"""Programs of an E2B sandbox, by the events of their streams."""

import asyncio
import base64
import json
import struct

import pytest

from sandboxes.base import DaemonRefused, DaemonUnavailable, SandboxDied, SandboxError
from sandboxes.e2b.options import E2BOptions
from sandboxes.e2b.server import EnvdStream, Server, check_server


def message(fields: dict, flags: int = 0) -> bytes:
    body = json.dumps(fields).encode()
    return struct.pack(">BI", flags, len(body)) + body


def event(**fields: object) -> bytes:
    return message({"event": fields})


def out(data: bytes, stream: str = "stdout") -> bytes:
    return event(data={stream: base64.b64encode(data).decode()})


STARTED, LAST = event(start={"pid": 7}), message({}, flags=2)


class Answer:
    """The body of an answer."""

    def __init__(self, *pieces: bytes) -> None:
        self.content = asyncio.StreamReader()
        self.content.feed_data(b"".join(pieces))
        self.content.feed_eof()
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Program:
    """Takes input in pieces. takes: bytes after which it takes none."""

    def __init__(self, takes: int = 1 << 40) -> None:
        self.taken = bytearray()
        self._takes = takes

    async def tell(self, pid: int, data: bytes) -> None:
        await asyncio.sleep(0)
        if len(self.taken) + len(data) > self._takes:
            raise DaemonUnavailable("broken pipe")
        self.taken += data


async def begun(*pieces: bytes, program: Program | None = None) -> EnvdStream:
    return await EnvdStream.open(Answer(STARTED, *pieces), (program or Program()).tell, "starting p")


async def test_output_comes_byte_by_byte_as_it_was_written():
    stream = await begun(out(b"\xff\x00"), message({}), out(b"said", "stderr"), out(b"\xfe"), event(end={}), LAST)
    assert await stream.read_all("p", 100) == b"\xff\x00\xfe"
    assert (stream.exit_code, stream.error_text) == (0, "said")


@pytest.mark.parametrize(("end", "code"), [({"exitCode": 3}, 3), ({"exitCode": -1}, 137)])
async def test_a_program_that_fails_says_how(end, code):
    stream = await begun(out(b"no such thing", "stderr"), event(end=end), LAST)
    with pytest.raises(SandboxError, match=f"p ended with {code}: no such thing"):
        await stream.read_all("p", 100)


async def test_a_stream_that_ends_without_an_exit_code_is_no_success():
    with pytest.raises(DaemonUnavailable, match="without an exit code"):
        await (await begun(out(b"x"), LAST)).read_all("p", 100)
    with pytest.raises(ConnectionResetError, match="the stream broke"):
        await (await begun(out(b"x"), b"\0")).read_all("p", 100)


async def test_more_output_than_was_asked_for_is_refused():
    with pytest.raises(ValueError, match="more than 3 bytes"):
        await (await begun(out(b"four"))).read_all("p", 3)


@pytest.mark.parametrize(
    ("code", "error"),
    [("not_found", SandboxDied), ("unauthenticated", DaemonRefused), ("internal", SandboxError)],
)
async def test_a_program_that_can_not_start_is_reported_with_the_servers_words(code, error):
    answer = Answer(message({"error": {"code": code, "message": "its words"}}, flags=2))
    with pytest.raises(error, match=r"starting p: .*its words"):
        await EnvdStream.open(answer, Program().tell, "starting p")
    assert answer.closed


async def test_input_arrives_whole_and_in_order_from_several_writers():
    program = Program()
    stream = await begun(program=program)
    pieces = [bytes([number]) * 300_000 for number in range(5)]
    await asyncio.gather(*map(stream.write, pieces))
    await stream.write(b"end")
    assert bytes(program.taken) == b"".join(pieces) + b"end"
    await stream.close()


async def test_input_that_the_program_does_not_take_is_not_said_to_be_taken():
    stream = await begun(program=Program(takes=600_000))
    with pytest.raises(ConnectionResetError, match="takes no input"):
        await stream.write(bytes(2_000_000))
    with pytest.raises(ConnectionResetError, match="takes no input"):
        await stream.write(b"more")
    await stream.close()


def test_each_sandbox_has_an_address_of_its_own():
    server = Server(None, E2BOptions(), "key")
    made = {"sandboxID": "abc", "domain": "example.org", "envdAccessToken": "secret"}
    assert server.connect_envd(made)._root == "https://49983-abc.example.org"
    assert server.connect_envd({"sandboxID": "abc"})._root == "https://49983-abc.e2b.app"


@pytest.mark.parametrize(
    ("status", "body", "error", "expected"),
    [
        (401, '{"message": "unknown key"}', ValueError, r"unknown key .HTTP 401.; put its key into the variable"),
        (404, "no such page", ValueError, r"--env.e2b.api_url http://.*no such page"),
        (200, "<html>", DaemonUnavailable, "answers, but not as the E2B server: '<html>'"),
        (200, "[1]", DaemonUnavailable, "not as the E2B server"),
    ],
)
async def test_a_wrong_address_or_key_is_refused_before_a_run(httpserver, monkeypatch, status, body, error, expected):
    monkeypatch.setenv("E2B_API_KEY", "e2b_x")
    httpserver.expect_request("/v2/sandboxes").respond_with_data(body, status)
    with pytest.raises(error, match=expected):
        await check_server(E2BOptions(api_url=httpserver.url_for("")))


async def test_a_key_that_is_not_there_is_refused_before_a_run(monkeypatch):
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(ValueError, match="E2B_API_KEY is not set"):
        await check_server(E2BOptions())


async def test_an_event_that_says_it_is_huge_breaks_the_stream():
    stream = await begun(struct.pack(">BI", 0, 1 << 31), b"x" * 100)
    with pytest.raises(ConnectionError, match="an event of 2147483648 bytes"):
        await asyncio.wait_for(stream.read(), 5)


async def test_a_key_with_a_line_break_is_one_sentence(monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", "e2b_key\n")
    with pytest.raises(ValueError, match="the variable E2B_API_KEY holds a line break"):
        await check_server(E2BOptions())
