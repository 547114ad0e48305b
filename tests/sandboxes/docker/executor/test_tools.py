"""Trees moved by tools beside process 1: nothing else moves meanwhile."""

import contextlib
import errno
import struct

import pytest
from fake_executor import FakeExecutor, connected, frame
from small_archives import archive, members

from sandboxes.base import Limits, NotSupported, SandboxDied, SandboxError
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.tools import ToolContainer
from sandboxes.docker.executor.trees import records_of

DONE = records_of(archive({}))
"""The end of records, without an error."""


def failed(error: int, path: bytes = b"") -> bytes:
    return struct.pack("<cIIIqQHH", b"E", error, 0, 0, 0, 0, len(path), 0) + path


class Box(ToolContainer):
    """A container whose tools say what the test says. events: what its executor and its tools are asked, in order."""

    def __init__(self, channel, says, events):
        super().__init__(Kind("image", Limits(), False), "box", channel, {}, contextlib.AsyncExitStack())
        self.says = says
        self.calls = []
        self.events = events

    async def _run(self, command, stdin, most):
        self.calls.append((command, stdin))
        self.events.append(command[0])
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    async def overran(self):
        return None


@contextlib.asynccontextmanager
async def box(says=DONE, *, has_run=True, stands=True):
    def answer(number, kind, payload):
        if kind in b"BQ":
            events.append((kind, payload))
        error = 0 if stands or payload == b"\0" else errno.ETIMEDOUT
        return frame(number, b"F", struct.pack("<I", error)) if kind == b"B" else None

    async with contextlib.AsyncExitStack() as stack:
        events = []
        channel = Channel(await connected(FakeExecutor(answer)))
        stack.push_async_callback(channel.close)
        channel.has_run = has_run
        yield Box(channel, says, events)


STAND, MOVE = (b"B", b"\1"), (b"B", b"\0")


async def test_a_tree_is_moved_while_everything_stands_still():
    async with box() as one:
        await one.unpack(archive({"a": b"1"}), "/app")
        assert one.events == [STAND, "unpack", MOVE]
        assert one.calls == [(("unpack", "/app"), records_of(archive({"a": b"1"})))]


async def test_a_sandbox_without_a_command_has_nothing_to_stop():
    async with box(has_run=False) as one:
        await one.unpack(archive({"a": b"1"}), "/app")
        assert one.events == ["unpack"]


async def test_where_it_can_not_stand_still_everything_is_killed_before_a_tree_is_read():
    async with box(stands=False) as one:
        await one.pack("/app", 100_000)
        kinds = [event if isinstance(event, str) else event[0] for event in one.events]
        assert kinds == [b"B", b"Q", "pack", b"B"]


async def test_it_moves_again_after_a_tool_that_failed():
    async with box(SandboxError("no")) as one:
        with pytest.raises(SandboxError, match="no"):
            await one.pack("/app", 100_000)
        assert one.events[-1] == MOVE


async def test_a_tree_comes_back_as_an_archive_or_with_the_tools_error():
    async with box(records_of(archive({"a": b"1", "b/c": b"2"}))) as one:
        assert {"a", "b/c"} <= members(await one.pack("/app", 100_000)).keys()
        one.says = failed(errno.EACCES, b"/app/secret")
        with pytest.raises(PermissionError, match="/app/secret"):
            await one.pack("/app", 100_000)
        one.says = failed(errno.EFBIG)
        with pytest.raises(ValueError, match="more than 9 bytes"):
            await one.pack("/app", 9)
        one.says = failed(errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            await one.unpack(archive({"a": b"1"}), "/app")


@pytest.mark.parametrize(
    ("asked", "path"), [("/app/../etc", "/etc"), ("app", "/app"), ("/link/", "/link/"), ("/link/.", "/link/.")]
)
async def test_the_last_name_of_a_path_is_a_link_unless_it_is_followed(asked, path):
    async with box(records_of(archive({"a": b"1"}))) as one:
        await one.pack(asked, 100_000)
        assert one.calls[0][0][1] == path


async def test_a_container_that_was_given_up_is_gone_though_it_runs_a_moment_more():
    async with box() as one:
        await one.discard()
        with pytest.raises(SandboxDied, match="its block was left"):
            await one.pack("/app", 100_000)
        assert not one.calls


async def test_nothing_is_left_to_kill_in_one_that_is_gone():
    async with box(SandboxDied("gone")) as one:
        await one.kill()
        assert one.calls == [(("kill",), b"")]


async def test_its_files_can_not_be_forked():
    async with box() as one:
        with pytest.raises(NotSupported, match="can't be forked"):
            one.snapshot()
