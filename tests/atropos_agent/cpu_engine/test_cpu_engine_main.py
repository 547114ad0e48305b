"""`python -m atropos_agent.cpu_engine`: it says when it is ready, and ends by a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys

import pytest

from atropos_agent.cpu_engine.model import LoadedModel


async def start(*options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "atropos_agent.cpu_engine", "--model", "tiny", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_says_when_it_is_ready_and_ends_by_a_signal(
    tiny: LoadedModel, number: signal.Signals
) -> None:
    process = await start("--port", "0", "--cache", str(tiny.path.parent.parent))
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    assert line.startswith("Ready: tiny at http://127.0.0.1:")
    process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), 10) == 0
    assert process.stderr is not None
    assert await process.stderr.read() == b""


async def test_a_busy_port_is_reported_at_once() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        process = await start("--port", str(other.getsockname()[1]))
        _, message = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"choose another --port" in message
