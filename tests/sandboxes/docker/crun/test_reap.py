"""An owner that is killed leaves nothing: no mounts, control groups, processes or folders."""

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import sys
import threading
from pathlib import Path

import aiodocker
import pytest
from crun_leftovers import gone, left_of

from sandboxes.docker.crun import reap
from sandboxes.docker.crun.reap import CGROUP, LOCK, OWNERS, STATE, make_locked, reap_dead_folders, remove_remains
from sandboxes.owner import PREFIX

OWNER = """
import asyncio, contextlib, sys
from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend

async def live(backend, number):
    while True:
        async with backend.open(SandboxSpec(sys.argv[1], workdir="/app")) as box:
            shell = await box.session()
            await shell.run("echo x >file; (sleep 4321 &)")
            async with box.fork(2) as forks:
                await asyncio.gather(*(fork.exec("cat file; sleep 0.05") for fork in forks))

async def main():
    async with DockerBackend(starter="crun") as backend:
        print(backend.owner.id, flush=True)
        await asyncio.gather(*(live(backend, number) for number in range(4)))

asyncio.run(main())
"""


@pytest.mark.docker
@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
async def test_nothing_is_left_of_a_killed_owner_without_anybodys_doing(with_crun, base_image, kills):
    rng = random.Random(7)
    async with aiodocker.Docker() as daemon:
        storage = Path((await daemon.system.info())["DockerRootDir"])
        for _ in range(kills):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", OWNER, base_image), stdout=asyncio.subprocess.PIPE
            )
            owner = (await process.stdout.readline()).decode().strip()
            await asyncio.sleep(rng.uniform(0, 2.0))
            process.kill()
            await process.wait()
            assert await gone(owner, storage) == []
            async with asyncio.timeout(120):  # what held the images is the Docker daemon's, and goes last
                while await daemon.containers.list(all=True, filters={"label": [f"{PREFIX}owner={owner}"]}):
                    await asyncio.sleep(0.1)


@pytest.mark.docker
async def test_what_a_power_cut_leaves_goes_with_the_next_start(with_crun, base_image):
    """Nobody is there to clear up: owner, crun, and what waits for the owner's end are killed at once."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, base_image), stdout=asyncio.subprocess.PIPE
    )
    owner = (await process.stdout.readline()).decode().strip()
    await asyncio.sleep(1.0)
    async with aiodocker.Docker() as daemon:
        storage = Path((await daemon.system.info())["DockerRootDir"])
    os.kill(process.pid, signal.SIGSTOP)
    async with asyncio.timeout(120):
        while living := await asyncio.to_thread(living_of, owner, storage):
            for pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)
    assert (storage / OWNERS / owner).exists()
    process.kill()
    await process.wait()
    async with asyncio.timeout(120):  # another's start may be at it already
        while await asyncio.to_thread(left_of, owner, storage):
            await asyncio.to_thread(reap_dead_folders, storage)
            await asyncio.sleep(0.01)


def living_of(owner: str, storage: Path) -> list[int]:
    """The processes of `left_of`, without those that are dead and have no command line any more."""
    lines = [line for line in left_of(owner, storage) if line.startswith("process ") and not line.endswith(" b''")]
    return [pid for line in lines if not is_killed(pid := int(line.split()[1].rstrip(":")))]


def is_killed(pid: int) -> bool:
    """Whether a process would die if a fork had not frozen it: a power cut asks nobody."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return any(signals & 1 << signal.SIGKILL - 1 for signals in pending)


def owners_folder(storage: Path, name: str) -> Path:
    folder = storage / OWNERS / name
    (folder / STATE).mkdir(parents=True)
    (folder / CGROUP).write_text("nowhere")
    return folder


def test_a_living_owners_folder_stays(tmp_path):
    living, dead = owners_folder(tmp_path, "living"), owners_folder(tmp_path, "dead")
    lock = os.open(living / LOCK, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert reap_dead_folders(tmp_path) == 1
    assert (living.exists(), dead.exists()) == (True, False)
    os.close(lock)
    assert reap_dead_folders(tmp_path) == 1
    assert reap_dead_folders(tmp_path / "no such place") == 0


def test_a_folder_that_was_cut_short_is_buried(tmp_path):
    (tmp_path / "half").mkdir()
    remove_remains(tmp_path / "half")
    assert not (tmp_path / "half").exists()


def test_a_folder_that_is_being_made_is_nobodys_remains(tmp_path, monkeypatch):
    (tmp_path / OWNERS).mkdir()
    reaper, usual = threading.Thread(target=reap_dead_folders, args=(tmp_path,)), reap._open_lock

    def late(folder):
        if not reaper.ident:
            reaper.start()
            reaper.join(0.2)
        return usual(folder)

    monkeypatch.setattr(reap, "_open_lock", late)
    lock = make_locked(tmp_path / OWNERS / "new")
    reaper.join()
    assert (tmp_path / OWNERS / "new" / LOCK).exists()
    os.close(lock)
