"""Sandboxes that somebody has had, for the next: what is not there any more, who gets none, and how many are kept."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest
from earlier_life import LEFT
from turns import turn

from sandboxes.base import Limits, SandboxDied, SandboxSpec
from sandboxes.docker import DockerBackend, PoolLimits
from sandboxes.docker.crun import spares

KEPT_BY_THE_KERNEL = "a port that the kernel keeps"

pytestmark = pytest.mark.docker


@pytest.fixture
def spec(base_image):
    return SandboxSpec(base_image, workdir="/app", limits=Limits(pids=64), shared="tests")


async def life(backend, spec, *commands, stop=False):
    """Return which sandbox it was, and what the last command printed."""
    async with backend.open(spec) as box:
        output = ""
        for command in commands:
            output = (await box.exec(command, user="root", timeout=5)).output
        if stop:
            await box.stop()
        return box.id, output


# Each by turns either left or stopped.
@pytest.mark.parametrize(
    ("left", "stop"),
    [
        pytest.param(left, stop, id=f"{left}, {'stopped' if stop else 'left'}", marks=[pytest.mark.slow] * late)
        for number, left in enumerate(LEFT)
        for stop in (False, True)
        for late in [(number + stop) % 2 != turn(2)]
    ],
)
async def test_nothing_of_it_is_there_for_the_next(crun_backend, spec, left, stop):
    leave, find = LEFT[left]
    _, at_the_start = await life(crun_backend, replace(spec, shared=""), find)
    first, _ = await life(crun_backend, spec, leave, stop=stop)
    second, found = await life(crun_backend, spec, find)
    assert found == at_the_start
    refused = (KEPT_BY_THE_KERNEL, "processes that breed")
    assert (second == first) is (left not in refused)


async def test_what_was_written_is_gone_from_the_disk(crun_backend, spec):
    async with crun_backend.open(spec) as box:
        await box.exec("head -c 20M /dev/zero >large")
        written, own = box.container.bundle.upper, box.container.bundle
    await asyncio.gather(*own._background)
    assert not written.exists()


@pytest.mark.parametrize(
    "other", [{"shared": "others"}, {"shared": ""}, {"switch_users": True}, {"limits": Limits(pids=63)}]
)
async def test_only_who_is_named_the_same_and_asks_for_the_same_has_it(crun_backend, spec, other):
    first, _ = await life(crun_backend, spec)
    second, _ = await life(crun_backend, replace(spec, **other))
    third, _ = await life(crun_backend, spec)
    assert first == third != second


async def test_user_environment_and_directory_may_be_others(crun_backend, spec):
    first, _ = await life(crun_backend, spec, "touch x", stop=True)
    other = replace(spec, user="nobody", workdir="/new", env={"A": "b"})
    async with crun_backend.open(other) as box:
        assert box.id == first
        assert (await box.exec("pwd; echo $A; id -un; ls -A")).output == "/new\nb\nnobody\n"


async def test_nobody_has_it_while_it_is_anothers(crun_backend, spec):
    async with crun_backend.open(spec) as one, crun_backend.open(spec) as other:
        assert one.id != other.id


OOM = "python3 -c 'x = bytearray(1 << 30)'"
FULL = "for i in $(seq 200); do sleep 9 & done"


@pytest.mark.parametrize("command", [OOM, FULL])
async def test_one_that_was_over_a_limit_is_nobodys_again(crun_backend, spec, command):
    small = replace(spec, limits=Limits(pids=64, memory_mb=128))
    first, _ = await life(crun_backend, small, command, stop=True)
    assert (await life(crun_backend, small))[0] != first


async def test_one_that_wrote_too_much_is_nobodys_again(crun_backend, spec):
    small = replace(spec, limits=Limits(disk_mb=50))
    write = "for i in $(seq 60); do head -c 10M /dev/zero >f$i || exit 9; sleep 0.02; done"
    first, output = await life(crun_backend, small, write)
    assert "disk limit" in output
    assert (await life(crun_backend, small))[0] != first


async def test_one_that_was_killed_is_nobodys_again(crun_backend, spec):
    with pytest.raises(SandboxDied):
        async with crun_backend.open(spec) as box:
            first = box.id
            os.kill(box.container.bundle.process.first, signal.SIGKILL)
            await box.exec("true")
    assert (await life(crun_backend, spec))[0] != first


async def test_one_whose_processes_do_not_end_is_nobodys_again(crun_backend, spec):
    async with crun_backend.open(spec) as box:
        await box.exec("sleep 1000 >/dev/null 2>&1 &")
        box.container.bundle.cgroup.freeze()
    assert (await life(crun_backend, spec))[0] != box.id


async def test_after_stop_nothing_runs_and_its_files_are_there(crun_backend, spec):
    async with crun_backend.open(spec) as box:
        await box.exec("(while :; do echo x >>made; done) >/dev/null 2>&1 & until [ -e made ]; do :; done")
        session = await box.session()
        await box.stop()
        assert box.container.bundle.cgroup.processes() == [box.container.bundle.process.first]
        for use in (box.exec("true"), session.run("true"), box.write_file("x", b""), box.upload(b"", ".")):
            with pytest.raises(SandboxDied, match="stopped"):
                await use
        assert b"made" in await box.download(".")
        assert await box.overran() is None
        with pytest.raises(SandboxDied):
            async with box.fork(1):
                pass
        await box.stop()
        await box.reset()
        assert (await box.exec("ls -A")).output == ""


async def test_no_more_are_kept_than_may_be(with_crun, spec):
    async with DockerBackend(starter="crun", pool=PoolLimits(used=1)) as backend:
        async with backend.open(spec) as one, backend.open(spec) as other:
            pass
        kept = {(await life(backend, spec))[0] for _ in range(2)}
        assert len(kept) == 1
        assert kept < {one.id, other.id}
    async with DockerBackend(starter="crun", pool=PoolLimits(used=0)) as backend:
        assert len({(await life(backend, spec))[0] for _ in range(2)}) == 2


async def test_none_is_kept_where_the_machine_has_too_little_left(with_crun, spec):
    async with DockerBackend(starter="crun", pool=PoolLimits(free_memory_mb=10**9)) as backend:
        assert len({(await life(backend, spec))[0] for _ in range(2)}) == 2


async def test_one_that_nobody_wants_goes(crun_backend, spec, monkeypatch):
    monkeypatch.setattr(spares, "_IDLE_S", 0.05)
    async with crun_backend.open(spec) as box:
        folder = box.container.bundle.folder
    assert folder.exists()
    for _ in range(200):
        if not folder.exists():
            break
        await asyncio.sleep(0.02)
    assert not folder.exists()
    assert (await life(crun_backend, spec))[0] != box.id


async def test_one_that_died_meanwhile_is_nobodys(crun_backend, spec):
    async with crun_backend.open(spec) as box:
        first = box.container.bundle.process.first
    os.kill(first, signal.SIGKILL)
    second, output = await life(crun_backend, spec, "echo fine")
    assert (second != box.id, output) == (True, "fine\n")


async def test_a_mount_or_a_fork_is_nobodys_again(crun_backend, spec, tmp_path):
    mounted = replace(spec, mounts={"/here": tmp_path})
    first, _ = await life(crun_backend, mounted, stop=True)
    assert (await life(crun_backend, mounted))[0] != first
    async with crun_backend.open(spec) as box:
        async with box.fork(1) as (branch,):
            await branch.write_file("x", b"")
        first = box.id
    assert await life(crun_backend, spec, "ls -A") == (first, "")


async def test_the_last_of_many_lives_is_the_last(crun_backend, spec, monkeypatch):
    monkeypatch.setattr(spares, "_MOST_LIVES", 3)
    lives = [(await life(crun_backend, spec))[0] for _ in range(4)]
    assert lives[0] == lives[1] == lives[2] != lives[3]
