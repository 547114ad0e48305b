"""Archives of the Docker daemon, read while they come."""

import io

import pytest
from small_archives import archive

from sandboxes.docker.daemon.archive import read_body


class Noting:
    """Notes the contents of files."""

    def __init__(self):
        self.found = {}

    def add(self, member, content):
        if content is not None:
            self.found[member.name] = content.read(member.size)


class Answer:
    """A response with a body that comes in small pieces. error: the end of its connection."""

    def __init__(self, body, error=None):
        self._body, self._error, self.closed, self.content = io.BytesIO(body), error, False, self

    async def read(self, size):
        piece = self._body.read(min(size, 700))
        if not piece and self._error is not None:
            raise self._error
        return piece

    def close(self):
        self.closed = True


BODY = archive({"t/one": b"1" * 3000, "t/two": b"2"})


async def test_its_members_come_in_their_order_however_it_is_cut():
    answer, reader = Answer(BODY), Noting()
    assert await read_body(answer, reader, "/t") is None
    assert reader.found == {"t/one": b"1" * 3000, "t/two": b"2"} and answer.closed


async def test_an_endless_archive_is_its_own_fault(monkeypatch):
    monkeypatch.setattr("sandboxes.docker.daemon.archive._MOST", 2000)
    answer = Answer(BODY)
    fault = await read_body(answer, Noting(), "/t")
    assert "/t holds more than 2000 bytes" in str(fault) and answer.closed


async def test_a_connection_that_breaks_is_no_fault_of_the_archive():
    answer = Answer(BODY[:2000], ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError, match="gone"):
        await read_body(answer, Noting(), "/t")
    assert answer.closed
