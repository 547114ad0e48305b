"""What the executor is asked for, and how its answers are understood."""

import asyncio
import errno
import struct

import pytest
from fake_executor import FakeExecutor, connected, end, frame

from sandboxes.base import SandboxDied, SandboxError
from sandboxes.docker.executor.channel import Channel, Identity
from sandboxes.docker.executor.connection import MAX_FRAME


def execute(channel, argv=("true",), **options):
    usual = {"cwd": "/", "env": {}, "identity": Identity(), "stdin": b"", "timeout": 5.0, "max_output": 100}
    return channel.execute(list(argv), **usual | options)


def done(number: int, error: int = 0) -> bytes:
    return frame(number, b"F", struct.pack("<I", error))


async def channel_that(answer) -> tuple[Channel, FakeExecutor]:
    executor = FakeExecutor(answer)
    return Channel(await connected(executor)), executor


async def test_a_commands_end_is_understood():
    def answer(number, kind, payload):
        return frame(number, b"O", b"out") + end(number, 3, flags=3, dropped=(7, 0, 0)) if kind == b"E" else None

    channel, executor = await channel_that(answer)
    ended = await execute(channel, stdin=b"in", max_output=3)
    assert (ended.exit_code, ended.timed_out, ended.truncated, ended.shell_ended) == (3, True, True, True)
    assert ended.raw == b"o\n[... 7 bytes dropped ...]\nut"
    assert [(kind, payload) for _, kind, payload in executor.frames[1:2]] == [(b"D", b"in")]
    await channel.close()


async def test_streams_that_are_kept_apart_are_understood():
    def answer(number, kind, payload):
        if kind != b"E":
            return None
        assert struct.unpack_from("<H", payload, 22) == (1,)
        said = frame(number, b"O", b"outerr") + frame(number, b"o", b"out") + frame(number, b"e", b"err")
        return said + end(number, dropped=(9, 4, 5))

    channel, _ = await channel_that(answer)
    ended = await execute(channel, split=True, max_output=2)
    assert ended.raw == b"o\n[... 9 bytes dropped ...]\nuterr"
    assert (ended.raw_stdout, ended.raw_stderr) == (
        b"o\n[... 4 bytes dropped ...]\nut",
        b"e\n[... 5 bytes dropped ...]\nrr",
    )
    await channel.close()


async def test_input_that_cannot_be_held_is_told_before_anything_runs():
    channel, _ = await channel_that(lambda number, kind, _: done(number, errno.EFBIG) if kind == b"E" else None)
    with pytest.raises(OSError, match="standard input") as caught:
        await execute(channel, stdin=b"in")
    assert caught.value.errno == errno.EFBIG
    await channel.close()


@pytest.mark.parametrize("options", [{"argv": ["a\0b"]}, {"cwd": "/\0"}, {"env": {"A": "\0"}}])
async def test_nul_characters_are_refused(options):
    channel, _ = await channel_that(lambda *_: None)
    with pytest.raises(ValueError, match="NUL"):
        await execute(channel, **options)
    await channel.close()


@pytest.mark.parametrize("options", [{"argv": ["x"] * 2**16}, {"env": {str(n): "" for n in range(2**16)}}])
async def test_too_many_arguments_or_variables_are_refused(options):
    channel, _ = await channel_that(lambda *_: None)
    with pytest.raises(ValueError, match="can have 65535 arguments and as many variables"):
        await execute(channel, **options)
    await channel.close()


@pytest.mark.parametrize("size", [-1, 2**32])
async def test_impossible_bounds_of_output_are_refused(size):
    channel, _ = await channel_that(lambda *_: None)
    with pytest.raises(ValueError, match="max_output must be from 0 to"):
        await execute(channel, max_output=size)
    with pytest.raises(ValueError, match="max_output must be from 0 to"):
        await channel.run_line(1, b"true", timeout=5.0, max_output=size)
    await channel.close()


async def test_a_command_that_no_frame_can_hold_is_refused():
    channel, executor = await channel_that(lambda *_: None)
    with pytest.raises(ValueError, match=f"more than {MAX_FRAME} bytes"):
        await execute(channel, ["x" * MAX_FRAME])
    assert [kind for _, kind, _ in executor.frames] == [b"T"], "nothing was sent but the token"
    await channel.close()


async def test_a_cancelled_command_is_taken_back_before_the_cancellation_goes_on():
    channel, executor = await channel_that(lambda number, kind, _: end(number, 137) if kind == b"K" else None)
    task = asyncio.create_task(execute(channel, timeout=60))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [kind for _, kind, _ in executor.frames] == [b"T", b"E", b"K"]
    await channel.close()


async def test_a_files_errors_are_the_standard_librarys():
    errors = iter([errno.ENOENT, errno.EISDIR, 27])
    channel, _ = await channel_that(lambda number, kind, _: done(number, next(errors)) if kind == b"R" else None)
    for error in (FileNotFoundError, IsADirectoryError, ValueError):
        with pytest.raises(error, match="/x"):
            await channel.read("/x", 10, Identity())
    await channel.close()


async def test_a_file_is_written_in_pieces_between_its_opening_and_its_end():
    channel, executor = await channel_that(lambda number, kind, _: done(number) if kind == b"C" else None)
    await channel.write("/x", b"1" * 300_000, 0o644, Identity())
    assert [kind for _, kind, _ in executor.frames] == [b"T", b"W", b"D", b"D", b"C"]
    await channel.close()


async def test_a_line_of_a_session_names_it():
    channel, executor = await channel_that(lambda number, kind, _: end(number) if kind in b"LK" else None)
    session = await channel.open_session(["sh"], cwd="/", env={}, identity=Identity())
    await channel.run_line(session, b"echo", timeout=2.0, max_output=9)
    await channel.close_session(session)
    _, (opened, _, _), (_, kind, line), (closed, _, _) = executor.frames
    assert opened == closed == session
    assert (kind, line) == (b"L", struct.pack("<4I", session, 9, 2000, 0) + b"echo")
    await channel.close()


async def test_a_door_that_cannot_be_opened_is_our_failure():
    answer = lambda number, kind, _: done(number, errno.EADDRINUSE) if kind == b"P" else None  # noqa: E731
    channel, executor = await channel_that(answer)
    with pytest.raises(SandboxError, match=r"port 31281"):
        await channel.open_door(31281, asyncio.Protocol)
    assert executor.frames[-1][1:] == (b"P", struct.pack("<I", 31281))
    await channel.close()


async def test_with_a_new_beginning_the_channel_before_is_over_and_the_next_goes_on():
    def answer(number, kind, payload):
        return {b"N": done(number), b"E": end(number)}.get(kind)

    channel, executor = await channel_that(answer)
    session = await channel.open_session(["sh"], cwd="/", env={}, identity=Identity())
    after = channel.renew("box")
    await after.reset(new_devices=True)
    assert executor.frames[-1][1:] == (b"N", b"\1")
    with pytest.raises(SandboxDied, match="it was reset"):
        await channel.run_line(session, b"pwd", timeout=5, max_output=100)
    assert (channel.alive, after.alive, after.busy) == (False, True, False)
    assert (await execute(after)).exit_code == 0
    await after.close()


async def test_a_new_beginning_that_the_executor_cannot_make_is_an_error():
    channel, _ = await channel_that(lambda number, kind, _: done(number, errno.ENODEV) if kind == b"N" else None)
    with pytest.raises(OSError, match="new beginning"):
        await channel.reset(new_devices=True)
    await channel.close()


async def test_a_channel_is_busy_while_a_request_is_under_way():
    asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    channel, executor = await channel_that(lambda number, kind, _: asked.set_result(number) if kind == b"E" else None)
    running = asyncio.create_task(execute(channel))
    number = await asked
    assert channel.busy
    executor.say(end(number))
    await running
    assert not channel.busy
    await channel.close()


@pytest.mark.parametrize("stands", [True, False])
async def test_whether_everything_stands_still_is_told(stands):
    def answer(number, kind, payload):
        return done(number, 0 if stands or not payload[0] else errno.ETIMEDOUT) if kind == b"B" else None

    channel, executor = await channel_that(answer)
    assert await channel.pause_processes() is stands
    await channel.resume_processes()
    assert [(kind, payload) for _, kind, payload in executor.frames[1:]] == [(b"B", b"\1"), (b"B", b"\0")]
    await channel.close()


async def test_requests_that_are_held_back_are_made_when_the_block_ends():
    channel, executor = await channel_that(lambda number, kind, _: end(number) if kind == b"E" else done(number))
    with channel.hold_requests():
        held = asyncio.create_task(execute(channel))
        await asyncio.sleep(0.05)
        assert await channel.pause_processes() and not held.done()
    assert (await held).exit_code == 0
    assert [kind for _, kind, _ in executor.frames] == [b"T", b"B", b"E"]
    await channel.close()


async def test_requests_that_were_held_back_hear_that_the_executor_is_gone():
    channel, executor = await channel_that(lambda number, kind, _: done(number) if kind == b"B" else None)
    with channel.hold_requests():
        held = asyncio.create_task(execute(channel))
        await asyncio.sleep(0)
        await executor.close()
    with pytest.raises(SandboxDied):
        await held
    await channel.close()
