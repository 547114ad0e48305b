"""The page beside a run: it is there while the run is, and holds nobody up."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from pids import lives
from waiting import in_time

from envs.viewer.door import KEY_FILE
from envs.viewer.live import live_page


async def answered(url: str) -> httpx.Response:
    """The answer of a page that may not have begun yet."""
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.get(url)


async def test_it_shows_the_run_and_ends_with_it(run_dir, caplog):
    with caplog.at_level(logging.INFO, logger="envs.viewer.live"):
        async with live_page(run_dir, "127.0.0.1:0"):
            url = re.search(r"http://127\.0\.0\.1:\d+/\S+/", caplog.text)[0]
            assert (run_dir / KEY_FILE).read_text() in url
            assert "The journal has 14 rollouts" in (await answered(f"{url}0/")).text
            assert (await answered(url.rsplit("/", 2)[0] + "/")).status_code == 404
        with pytest.raises(httpx.ConnectError):
            await answered(url)


def children() -> str:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()


async def test_a_run_without_the_option_has_none(run_dir):
    before = children()
    async with live_page(run_dir, ""):
        assert children() == before


async def test_a_port_in_use_is_named_with_the_remedy(run_dir):
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(OSError, match=rf"--env.live 127.0.0.1:{port}: .* give another port"):
            async with live_page(run_dir, f"127.0.0.1:{port}"):
                pass


RUN = """
import asyncio, sys
from pathlib import Path
from envs.viewer.live import live_page
async def run():
    async with live_page(Path(sys.argv[1]), "127.0.0.1:0"):
        print("there", flush=True)
        await asyncio.sleep(60)
asyncio.run(run())
"""


def test_it_ends_also_when_the_run_is_killed(run_dir):
    with subprocess.Popen([sys.executable, "-c", RUN, str(run_dir)], stdout=subprocess.PIPE, text=True) as run:
        run.stdout.readline()
        (page,) = map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split())
        run.send_signal(signal.SIGKILL)
    assert in_time(lambda: not lives(page))
