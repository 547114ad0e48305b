"""Sandboxes on containers that somebody else's server starts."""

import asyncio
import contextlib
import errno
import struct

import pytest
from fake_executor import FakeExecutor, connected, end, frame
from small_archives import archive
from stopwatch import Stopwatch
from waiting import until

from sandboxes.base import NotSupported, SandboxDied, SandboxSpec
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.tools import ToolContainer
from sandboxes.docker.executor.trees import records_of
from sandboxes.remote.backend import RemoteBackend, query_image
from sandboxes.remote.images import NamedImages

SPEC = SandboxSpec("image", workdir="/app")


class Box(ToolContainer):
    """A container that only counts. shown: how often it was kept from ending."""

    def __init__(self, *args):
        super().__init__(*args)
        self.unpacked = {}
        self.left = False
        self.shown = 0

    async def _run(self, command, stdin, most):
        self.unpacked[command[1]] = stdin
        return records_of(archive({}))

    async def discard(self):
        await super().discard()
        self.left = True

    async def overran(self):
        return None

    async def renew_lease(self):
        self.shown += 1
        raise SandboxDied("gone")


class Filled(NamedImages):
    """files: of every image."""

    def __init__(self, files):
        super().__init__("base")
        self.files = files

    def unbuildable(self, context):
        return None

    async def build(self, context, digest):
        return f"built:{digest}"

    def parts(self, image):
        return super().parts(image)[0], self.files


class Boxes(RemoteBackend):
    """boxes: those that were launched. files: of every image. error: of their executors, for a folder to make."""

    def __init__(self, files=None, error=0):
        super().__init__(Filled(files))
        self.boxes = []
        self.folders = []
        self._error = error

    async def launch(self, kind):
        def answer(number, asked, payload):
            if asked == b"M":
                self.folders.append(payload[:-1].rpartition(b"\0")[2].decode())
            return frame(number, b"F", struct.pack("<I", self._error)) if asked in b"MP" else None

        stack = contextlib.AsyncExitStack()
        channel = Channel(await connected(FakeExecutor(answer)))
        stack.push_async_callback(channel.close)
        self.boxes.append(Box(kind, f"box-{len(self.boxes)}", channel, {"WorkingDir": "/srv"}, stack))
        return self.boxes[-1]


async def test_an_images_files_are_put_into_its_working_directory():
    files = archive({"a": b"1"})
    backend = Boxes(files)
    async with backend.open(SandboxSpec("image+files-1")) as box:
        [container] = backend.boxes
        assert (box.workdir, backend.folders) == ("/srv", ["/srv"])
        assert container.unpacked == {"/srv": records_of(files)}
        assert container.kind.image == "image+files-1", "which another of its kind is opened by"
    assert container.left


async def test_a_tasks_own_folder_is_made():
    backend = Boxes()
    async with backend.open(SPEC) as box:
        assert (box.workdir, backend.folders) == ("/app", ["/app"])


async def test_a_container_that_can_not_be_prepared_is_released():
    backend = Boxes(error=errno.EROFS)
    with pytest.raises(OSError, match="Read-only"):
        async with backend.open(SPEC):
            pass
    assert [one.left for one in backend.boxes] == [True]


async def test_folders_of_this_host_and_relative_ones_are_refused_before_anything_starts(tmp_path):
    backend = Boxes()
    with pytest.raises(NotSupported, match="folders of this host"):
        async with backend.open(SandboxSpec("image", mounts={"/m": tmp_path})):
            pass
    with pytest.raises(ValueError, match="absolute"):
        async with backend.open(SandboxSpec("image", workdir="app")):
            pass
    assert not backend.boxes


async def test_a_reset_takes_another_container_and_lets_the_first_go():
    backend = Boxes()
    async with backend.open(SPEC) as box:
        await box.reset()
        first, second = backend.boxes
        assert box.container is second
        await until(lambda: first.left)
        assert not second.left
    assert second.left


async def test_forks_are_refused_by_name():
    async with Boxes().open(SPEC) as box:
        with pytest.raises(NotSupported, match="can't be forked"):
            async with box.fork(2):
                pass


async def test_interest_is_shown_in_open_sandboxes_though_one_is_gone(monkeypatch):
    monkeypatch.setattr("sandboxes.remote.backend.LEASE_S", 0.05)
    backend = Boxes()
    showing = asyncio.create_task(backend.renew_leases())
    async with backend.open(SPEC):
        async with backend.open(SPEC):
            await until(lambda: all(one.shown > 1 for one in backend.boxes) and len(backend.boxes) == 2)
        shown = backend.boxes[1].shown
        await until(lambda: backend.boxes[0].shown > shown + 2)
        assert backend.boxes[1].shown == shown
    showing.cancel()


@pytest.mark.parametrize(
    ("said", "workdir", "env"),
    [
        (b"/srv\n/home/app\n", "/srv", ["HOME=/home/app"]),
        (b"/\n/root\n", "/", []),
        (b"sh: pwd: not found\n", "/", []),
        (b"", "/", []),
    ],
)
async def test_an_images_folder_and_home_are_what_its_first_process_knows(said, workdir, env):
    channel = Channel(await connected(FakeExecutor(lambda number, *_: frame(number, b"O", said) + end(number))))
    assert await query_image(channel) == {"WorkingDir": workdir, "Env": env}
    assert not channel.has_run, "nothing of it is left that would have to stand still"
    await channel.close()


async def test_many_sandboxes_are_kept_from_ending_as_soon_as_few(monkeypatch):
    """One after the other, those of 200 would take longer than their leases on a server that needs 5 s for each."""
    monkeypatch.setattr("sandboxes.remote.backend.LEASE_S", 0.05)
    backend = Boxes()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(16):
            await stack.enter_async_context(backend.open(SPEC))

        async def renew_lease(box):
            await asyncio.sleep(0.1)
            box.shown += 1

        monkeypatch.setattr(Box, "renew_lease", renew_lease)
        renewing = asyncio.create_task(backend.renew_leases())
        watch = Stopwatch()
        await until(lambda: all(box.shown for box in backend.boxes))
        renewing.cancel()
    assert watch.seconds < 1.2, "16 times 0.1 s"
