"""Connections to servers of this machine."""

import asyncio
import socket

import pytest

from sandboxes.local.ports import streams_to


async def echo(reader, writer):
    writer.write(await reader.read())
    writer.close()


async def test_a_socket_whose_path_is_long_is_reached(tmp_path, monkeypatch):
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    monkeypatch.chdir(folder)
    async with await asyncio.start_unix_server(echo, "s"), streams_to(folder / "s", 5) as (reader, writer):
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"hello"


async def test_a_port_of_the_newer_protocol_alone_is_reached():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        async with streams_to(listener.getsockname()[1], 5):
            pass


@pytest.mark.parametrize("target", [1, "nothing"])
async def test_who_is_not_there_refuses(tmp_path, target):
    with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
        async with streams_to(target if isinstance(target, int) else tmp_path / target, 5):
            pass
