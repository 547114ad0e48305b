"""A Docker daemon of the test's own, in a network namespace of its own, that may be ended and started."""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.base import DaemonUnavailable
from sandboxes.docker.daemon.client import connect

STARTS = 4
SLOW_CONTAINERD = "timeout waiting for containerd to start"


class Daemon:
    """A dockerd. `--bridge none` would take away the other Docker daemon's bridge but for the namespace.

    options: more of its options.
    subids: what it finds in /etc/subuid and /etc/subgid, in a mount namespace of its own; None for the machine's.
    archive: of the image that it has.
    """

    archive: Path

    def __init__(self, folder: Path, *options: str, subids: str | None = None) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/docker.sock"
        self._command = dockerd(folder, *options, subids=subids)

    async def start(self) -> None:
        self._process = await running(self._command, self.folder, self.url)

    async def end(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            os.kill(self._process.pid, number)
        await self._process.wait()
        (self.folder / "pid").unlink(missing_ok=True)
        if number == signal.SIGKILL:
            # Its containerd dies with it; as a zombie that nobody reaps it would pass for alive.
            (self.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    async def load(self) -> None:
        await asyncio.to_thread(load_image, self.archive, self.url)

    async def leave(self) -> None:
        """End it for good, with its containerd; what it has mounted would keep the folder from being removed."""
        await self.end(signal.SIGTERM)
        await asyncio.to_thread(tidy_up, self.folder)


async def running(command: list[str], folder: Path, url: str) -> asyncio.subprocess.Process:
    """Run a dockerd until it answers; its log is in the folder. The test fails where it does not come up.

    On a busy machine it ends before its containerd, for which it waits 15 s, is there; it is started again then."""
    for _ in range(STARTS):
        with (folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, start_new_session=True)
        for _ in range(120):
            try:
                async with connect(url):
                    return process
            except DaemonUnavailable:
                if process.returncode is not None:
                    break
                await asyncio.sleep(0.5)
        if process.returncode is None:
            process.kill()
            await process.wait()
            break
        if SLOW_CONTAINERD not in (folder / "log").read_text()[-2000:]:
            break
    await asyncio.to_thread(tidy_up, folder)
    pytest.fail((folder / "log").read_text()[-2000:])


def dockerd(folder: Path, *options: str, subids: str | None = None) -> list[str]:
    """Return the command that runs a dockerd which keeps everything in a folder, also its socket "docker.sock"."""
    command = ["unshare", "--net", "dockerd"]
    if subids is not None:
        (folder / "subids").write_text(subids)
        hide = f"for name in subuid subgid; do mount --bind {folder}/subids /etc/$name; done"
        command = ["unshare", "--net", "--mount", "sh", "-ec", f'{hide}; exec dockerd "$@"', "sh"]
    command += [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--host=unix://{folder}/docker.sock"]
    return [*command, f"--pidfile={folder}/pid", "--bridge=none", "--iptables=false", "--ip-masq=false", *options]


def tidy_up(folder: Path) -> None:
    """End the containerd of a daemon that has ended, and unmount what it has mounted in its folder."""
    for file in folder.glob("exec*/containerd/containerd.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in reversed([place for place in places if place.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", place], check=True)


async def unpack(archive: Path, data: Path) -> None:
    """Leave the data folder of a daemon that has an image."""
    with short_folder() as folder:
        daemon = Daemon(folder)
        daemon.archive = archive
        await daemon.start()
        await daemon.load()
        await daemon.leave()
        await asyncio.to_thread((folder / "data").rename, data)


def link_or_copy(unpacked: Path, data: Path) -> None:
    """Make a data folder like another one. To unpack an image takes seconds of a processor, and links take none: a
    daemon removes files of its images and never writes to them. It writes to its databases."""
    data.mkdir()
    for part in unpacked.iterdir():
        subprocess.run(["cp", "-a", *(["--link"] if part.name == "overlay2" else []), part, data], check=True)
    (data / "engine-id").unlink(missing_ok=True)


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Not pytest's own: with its worker and test in the path, containerd's socket has more than 107 characters."""
    with tempfile.TemporaryDirectory(prefix="dockerd-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def copy_image(name: str, url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        load_image(save_image(name, Path(folder, "image.tar")), url)


def save_image(name: str, archive: Path) -> Path:
    subprocess.run(["docker", "save", "-o", archive, name], check=True)
    return archive


def load_image(archive: Path, url: str) -> None:
    subprocess.run(["docker", "-H", url, "load", "-i", archive], check=True, capture_output=True)
