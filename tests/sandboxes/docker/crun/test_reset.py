"""A reset of a sandbox that lives on, what it costs no other sandbox, and when another takes its place."""

import asyncio
from pathlib import Path

import pytest
from earlier_life import LEFT

from sandboxes.base import Limits, SandboxDied, SandboxSpec

KEPT_BY_THE_KERNEL = "a port that the kernel keeps"


def of_a_run(box):
    return Path(f"/proc/{box.container.bundle.process.first}/stat").read_text().rpartition(") ")[2].split()[19]


@pytest.mark.parametrize("left", [name for name in LEFT if name != KEPT_BY_THE_KERNEL])
async def test_process_1_lives_on_whatever_was_left(crun_backend, base_image, left):
    async with crun_backend.open(SandboxSpec(base_image, workdir="/app", limits=Limits(pids=64))) as box:
        container, began = box.container, of_a_run(box)
        await box.exec(LEFT[left][0], timeout=5)
        await box.reset()
        assert (box.container, of_a_run(box)) == (container, began)
        assert (await box.exec("ls -A; pwd; touch /app/x /tmp/x /dev/shm/x && echo well")).output == "/app\nwell\n"


async def test_its_mounts_are_those_of_the_start(crun_box):
    async def mounts():
        lines = (await crun_box.exec("cat /proc/self/mountinfo")).output.splitlines()
        return sorted(line.split(" ", 4)[4].partition(",lowerdir=")[0] for line in lines)

    at_the_start = await mounts()
    for _ in range(2):
        await crun_box.reset()
        assert await mounts() == at_the_start


async def test_another_takes_its_place_where_the_kernel_keeps_a_connection(crun_box):
    container = crun_box.container
    await crun_box.exec(LEFT[KEPT_BY_THE_KERNEL][0])
    await crun_box.reset()
    assert crun_box.container is not container
    assert (await crun_box.exec("tail -n +2 /proc/net/tcp")).output == ""


async def test_another_takes_its_place_while_a_command_runs(crun_box):
    container = crun_box.container
    running = asyncio.create_task(crun_box.exec("touch /app/x; sleep 1000", timeout=1000))
    while (await crun_box.exec("test -e /app/x")).exit_code:
        pass
    await crun_box.reset()
    with pytest.raises(SandboxDied):
        await running
    assert crun_box.container is not container
    assert (await crun_box.exec("ls -A")).output == ""


async def test_another_takes_its_place_where_processes_do_not_end(crun_box):
    container = crun_box.container
    await crun_box.exec("sleep 1000 >/dev/null 2>&1 &")
    container.bundle.cgroup.freeze()
    await crun_box.reset()
    assert crun_box.container is not container


async def test_another_takes_its_place_after_stop(crun_box):
    await crun_box.write_file("made", b"1")
    await crun_box.stop()
    await crun_box.reset()
    assert (await crun_box.exec("ls -A")).output == ""


async def test_a_branch_is_reset_to_the_files_that_it_began_with(crun_box):
    await crun_box.write_file("file", b"forked")
    async with crun_box.fork(1) as (branch,):
        container = branch.container
        await branch.write_file("file", b"changed")
        await branch.reset()
        assert await branch.read_file("file") == b"forked"
        assert (await branch.exec("ls -A /")).output.count("executor") == 0
        assert branch.container is container


async def test_one_that_was_forked_is_reset_and_its_branches_go_on(crun_box):
    await crun_box.write_file("file", b"forked")
    async with crun_box.fork(1) as (branch,):
        await crun_box.reset()
        assert (await crun_box.exec("ls -A")).output == ""
        await crun_box.write_file("file", b"after")
        async with crun_box.fork(1) as (later,):
            assert await later.read_file("file") == b"after"
        assert await branch.read_file("file") == b"forked"
    assert await crun_box.read_file("file") == b"after"


async def test_what_was_written_is_removed_and_no_longer_counted(crun_box):
    await crun_box.exec("head -c 20M /dev/zero >/app/large")
    box = crun_box.container.bundle
    before = box.upper
    await crun_box.reset()
    assert (await crun_box.container.disk_usage()).bytes < 2**20
    await asyncio.gather(*box._background)
    assert not before.exists()
    used = "memory.current" if box.cgroup.unified else "memory.usage_in_bytes"
    assert box.cgroup._read_number("memory", used) < 10 * 2**20, "the kernel keeps files that were removed"


async def test_an_upload_that_is_under_way_goes_to_the_old_files(crun_box):
    with crun_box.container._root() as root:
        await crun_box.reset()
        assert Path(f"/proc/self/fd/{root}").readlink() is not None
    assert (await crun_box.exec("ls -A")).output == ""


class Counted(asyncio.Protocol):
    """What a door serves; it counts what comes."""

    made = lost = 0

    def connection_made(self, transport):
        type(self).made += 1

    def connection_lost(self, error):
        type(self).lost += 1


CONNECTING = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(100)]
for one in held:
    one.send(b"of the earlier life")
print("connected", flush=True)
import time
time.sleep(1000)
"""


async def test_doors_lead_nobody_of_the_earlier_life_to_us(crun_backend, base_image):
    class Door(Counted):
        pass

    async with crun_backend.open(SandboxSpec(base_image, doors={"one": Door})) as box:
        container = box.container
        port = box.door("one").rpartition(":")[2]
        await box.write_file("/tmp/connecting.py", CONNECTING.encode())
        await box.exec(f"python3 /tmp/connecting.py {port} >/tmp/said & until grep -q connected /tmp/said; do :; done")
        while not Door.made:
            await asyncio.sleep(0)
        await box.reset()
        before = Door.made
        assert (box.container, box.door("one").rpartition(":")[2]) == (container, port)
        greet = f"import socket; socket.create_connection(('127.0.0.1', {port})).close()"
        assert (await box.exec(["python3", "-c", greet])).exit_code == 0
        while Door.lost < before + 1:
            await asyncio.sleep(0)
        assert Door.made == before + 1
