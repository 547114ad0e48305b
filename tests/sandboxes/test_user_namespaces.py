"""A Docker daemon with `userns-remap`: root in a sandbox is nobody on the machine."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from own_daemon import Daemon, copy_image
from waiting import until

from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend

FIRST = 200_000


@pytest.fixture
def folder():
    """Which the Docker daemon's remapped root can pass through, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
async def box(base_image, folder):
    if os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("unshare"):
        pytest.skip("needs root, dockerd and unshare")
    daemon = Daemon(folder, "--userns-remap=nobody:nogroup", subids=f"nobody:{FIRST}:65536\n")
    await daemon.start()
    await asyncio.to_thread(copy_image, base_image, daemon.url)
    async with DockerBackend(url=daemon.url) as backend, backend.open(SandboxSpec(base_image, workdir="/app")) as box:
        yield box
    await daemon.leave()


def owner_of(name: str) -> int | None:
    """The user id, on the machine, of the process with this command line; None when there is none."""
    found = [place.stat().st_uid for place in Path("/proc").glob("[0-9]*") if _command(place) == name]
    return found[0] if found else None


def _command(place: Path) -> str:
    try:
        return (place / "cmdline").read_text().replace("\0", " ").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.docker
@pytest.mark.slow
async def test_root_of_a_sandbox_is_another_user_on_the_machine_and_all_works(box):
    naps = asyncio.create_task(box.exec("id -u; exec sleep 7531"))
    await until(lambda: owner_of("sleep 7531") is not None)
    assert owner_of("sleep 7531") == FIRST
    naps.cancel()
    await asyncio.wait({naps})
    assert owner_of("sleep 7531") is None

    await box.write_file("a/b", b"1")
    assert await box.read_file("a/b") == b"1"
    assert (await box.exec("id -u; stat -c %U a/b; cat /proc/self/uid_map")).output.split() == [
        *("0", "root"),
        *("0", str(FIRST), "65536"),
    ]
    assert (await box.exec("id -un", user="nobody")).output == "nobody\n"
    shell = await box.session()
    await shell.run("cd a; x=5")
    assert (await shell.run("(setsid sleep 7532 &); sleep 60", timeout=0.5)).timed_out
    assert (await shell.run("echo $x; ls")).output == "5\nb\n"
    await box.upload(await box.download("a"), "c")
    async with box.fork(1) as (fork,):
        assert await fork.read_file("c/b") == b"1"
    await box.reset()
    assert (await box.exec("ls; ps ax | grep -c '[s]leep'")).output == "0\n"
