"""The folder of a backend's sandboxes; what waits for its owner's end is tested in test_reap.py."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from crun_leftovers import left_of

from sandboxes.docker.crun.owner_directory import EXECUTOR, OwnerDirectory
from sandboxes.docker.crun.reap import OWNERS, reap_dead_folders


async def watching(home, number):
    """The processes that wait for the owner's end, once there are so many."""
    async with asyncio.timeout(120):
        while True:
            lines = [line for line in left_of(home.owner, home.storage) if line.startswith("process ")]
            if len(lines) == number:
                return [int(line.split()[1].rstrip(":")) for line in lines]
            await asyncio.sleep(0.01)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_it_is_there_for_the_block_and_nobody_elses(tmp_path):
    old = os.umask(0o077)
    try:
        async with OwnerDirectory(tmp_path, "owner", "nowhere", b"program") as home:
            assert reap_dead_folders(tmp_path) == 0, "its owner lives"
            assert stat.S_IMODE((tmp_path / OWNERS).stat().st_mode) == stat.S_IMODE(home.path.stat().st_mode) == 0o700
            program = home.executor.path / EXECUTOR
            assert (program.read_bytes(), stat.S_IMODE(program.stat().st_mode)) == (b"program", 0o755)
            assert stat.S_IMODE((home.etc.path / "etc" / "hosts").stat().st_mode) == 0o644
            assert stat.S_IMODE((home.etc.path / "etc").stat().st_mode) == 0o755
            assert home.new_name() != home.new_name()
            assert home.layer("7").name == f"{OWNERS}/owner/7"
            (watcher,) = await watching(home, 1)
            assert parent(watcher) != os.getpid(), "what ends this process with its children does not find it"
        assert not home.path.exists()
        assert await watching(home, 0) == []
    finally:
        os.umask(old)


async def test_nothing_is_left_of_one_that_can_not_be_made(tmp_path, monkeypatch):
    def full(path, data, mode):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sandboxes.docker.crun.owner_directory._write", full)
    with pytest.raises(OSError, match="No space"):
        async with OwnerDirectory(tmp_path, "owner", "nowhere", b"program"):
            pass
    assert list((tmp_path / OWNERS).iterdir()) == []
