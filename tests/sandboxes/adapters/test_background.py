"""Backends in an event loop of their own: shared, tried again, and left in order with the process."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandboxes.adapters import background as module
from sandboxes.adapters.background import BackgroundLoop
from sandboxes.base import SandboxError
from sandboxes.local import LocalBackend


@pytest.fixture
def background():
    made = BackgroundLoop()
    yield made
    made.close()


def test_threads_and_loops_have_one_backend(background):
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: background.run(background.backend("local")), range(8)))
    found.add(asyncio.run(background.run_async(background.backend("local"))))
    (backend,) = found
    assert isinstance(backend, LocalBackend)


def test_one_that_could_not_be_opened_is_tried_again(background, monkeypatch):
    class Fails(LocalBackend):
        times = 0

        async def __aenter__(self):
            Fails.times += 1
            if Fails.times == 1:
                raise SandboxError("not yet")
            return await super().__aenter__()

    monkeypatch.setattr(module, "load_backend", lambda name: Fails())
    with pytest.raises(SandboxError, match="not yet"):
        background.run(background.backend("x"))
    assert isinstance(background.run(background.backend("x")), Fails)


LEFT_OPEN = """
import asyncio
from sandboxes.adapters.background import background_loop
from sandboxes.local import LocalBackend

class Backend(LocalBackend):
    async def __aexit__(self, *exc):
        await asyncio.to_thread(print, "left in order")

async def opened():
    return await background_loop()._open.enter_async_context(Backend())

background_loop().run(opened())
"""


def test_what_is_open_when_the_process_ends_is_closed():
    ran = subprocess.run([sys.executable, "-c", LEFT_OPEN], check=False, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "left in order\n"
    assert "Traceback" not in ran.stderr


def test_what_is_cancelled_in_another_loop_has_ended_there(background):
    steps = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            steps.append("ended")

    async def cancelled():
        waiting = asyncio.create_task(background.run_async(work()))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.wait({waiting})
        steps.append("cancelled" if waiting.cancelled() else "went on")

    asyncio.run(cancelled())
    assert steps == ["ended", "cancelled"]


ENDS = """
import asyncio
from sandboxes.adapters.background import background_loop
background_loop().run(background_loop().backend("local"))
background_loop().run(asyncio.to_thread(print, "done"))
"""


def test_a_process_that_used_threads_ends_in_silence():
    ended = subprocess.run([sys.executable, "-c", ENDS], check=False, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert "Traceback" not in ended.stderr
