"""A command that is followed, as frames."""

import asyncio
import contextlib
import struct

import pytest
from fake_executor import FakeExecutor, connected, end, frame
from waiting import until

from sandboxes.base import DaemonRestarted, PtySize, SandboxDied, SandboxError, SandboxTimeout
from sandboxes.docker.executor import process as process_module
from sandboxes.docker.executor.channel import Channel, Identity
from sandboxes.process import WINDOW


async def started(answer=lambda *_: None, *more: FakeExecutor, **options):
    executor = FakeExecutor(answer)
    connection = await connected(executor, *more, runs=bool(more))
    usual = {"cwd": "/", "env": {}, "identity": Identity(), "timeout": 60.0, "max_output": 100, "stdin": True}
    usual |= {"pty": None, "split": False, "attribution": contextlib.nullcontext()}
    process = await Channel(connection).start(["cat"], **usual | options)
    return process, executor


def kinds(executor: FakeExecutor) -> list[bytes]:
    return [kind for _, kind, _ in executor.frames]


async def test_how_it_is_to_run_is_in_its_request():
    process, executor = await started(pty=PtySize(24, 80))
    number, _, request = executor.frames[-1]
    assert struct.unpack_from("<6H", request, 16) == (1, 1, 0, 2 | 4 | 8, 24, 80)
    executor.say(end(number))
    await process.wait()
    await process.close()


async def test_what_was_read_is_given_back_and_what_was_let_go_comes_in_the_end():
    process, executor = await started()
    number = executor.frames[-1][0]
    executor.say(frame(number, b"1", b"x" * 50_000))
    assert len(await process.stdout.read(50_000)) == 50_000
    assert executor.frames[-1] == (number, b"g", struct.pack("<BI", 0, 50_000))
    executor.say(frame(number, b"1", b"x"))
    waiting = asyncio.create_task(process.wait())
    await until(lambda: executor.frames[-1] == (number, b"v", b"\0"))
    executor.say(frame(number, b"O", b"a" * 50 + b"z" * 50) + end(number, 7, dropped=(1000, 0, 0)))
    result = await waiting
    assert (result.exit_code, result.truncated) == (7, True)
    assert result.raw == b"x" * 50 + b"\n[... 51001 bytes dropped ...]\n" + b"z" * 50
    await process.close()


async def test_nobody_writes_more_than_a_window_ahead():
    process, executor = await started()
    number = executor.frames[-1][0]
    writing = asyncio.create_task(process.write(b"x" * (WINDOW + 10)))
    await asyncio.sleep(0.01)
    assert sum(len(payload) for _, kind, payload in executor.frames if kind == b"d") == WINDOW
    executor.say(frame(number, b"G", struct.pack("<I", 100)))
    await asyncio.wait_for(writing, 120)
    assert sum(len(payload) for _, kind, payload in executor.frames if kind == b"d") == WINDOW + 10
    executor.say(frame(number, b"Y"))
    await asyncio.sleep(0.01)
    with pytest.raises(BrokenPipeError):
        await process.write(b"x")
    executor.say(end(number))
    await process.close()


async def test_one_that_has_not_ended_is_killed_in_the_end():
    process, executor = await started(lambda number, kind, _: end(number, 137) if kind == b"K" else None)
    await process.close()
    assert (kinds(executor), process.exit_code) == ([b"T", b"E", b"K"], 137)


async def test_an_end_that_is_not_reported_is_a_failure_of_ours_but_not_while_output_waits_to_be_read(monkeypatch):
    monkeypatch.setattr(process_module, "_ANSWER_S", 0.1)
    monkeypatch.setattr(process_module, "_KILL_S", 0.1)
    process, executor = await started(timeout=0.1)
    executor.say(frame(executor.frames[-1][0], b"1", b"unread"))
    await asyncio.sleep(0.5)
    assert await process.stdout.read() == b"unread"
    with pytest.raises(SandboxTimeout):
        await process.stdout.read()
    with pytest.raises(SandboxTimeout):
        await process.wait()
    await process.close()


async def test_one_that_ran_while_the_daemon_was_away_says_so():
    process, executor = await started(lambda *_: None, FakeExecutor())
    await executor.close()
    with pytest.raises(DaemonRestarted):
        await process.stdout.read()
    with pytest.raises(DaemonRestarted):
        await process.wait()
    await process.close()


async def test_one_whose_sandbox_is_gone_says_so_to_who_writes():
    process, executor = await started()
    await executor.close()
    with pytest.raises(SandboxDied):
        for _ in range(100):
            await process.write(b"x")
            await asyncio.sleep(0.01)
    await process.close()


async def test_output_beyond_the_window_and_an_end_that_is_none_harm_nobody():
    process, executor = await started()
    number = executor.frames[-1][0]
    for _ in range(10):
        executor.say(frame(number, b"1", b"x" * WINDOW))
    executor.say(frame(number, b"X", b"none"))
    with pytest.raises(SandboxError, match="end that is none"):
        await asyncio.wait_for(process.wait(), 5)
    assert process._streams[0].unread <= 2 * WINDOW
    await process.close()
