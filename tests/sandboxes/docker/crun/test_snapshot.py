"""Forks of living sandboxes: what a parent sees and does meanwhile, and how deep forks can be."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from small_archives import archive

from sandboxes.base import SandboxDied, SandboxSpec
from sandboxes.docker.crun import snapshot as forking

pytestmark = pytest.mark.docker


def frozen(box) -> int:
    """How many layers of its own the sandbox stands on."""
    return len(box.container.bundle.written)


async def test_an_idle_session_goes_on_where_it_was(crun_box):
    shell = await crun_box.session()
    await shell.run("mkdir -p deep/er; cd deep/er; x=5; f() { echo $x here; }; echo one >file")
    async with crun_box.fork(2) as forks:
        assert frozen(crun_box) == 1, "nothing is copied"
        assert (await shell.run("f; pwd; cat file; echo two >file")).output == "5 here\n/app/deep/er\none\n"
        await crun_box.exec("echo three >>deep/er/file")
        assert (await shell.run("cat file")).output == "two\nthree\n"
        for fork in forks:
            assert (await fork.exec("cat deep/er/file; ls -A /")).output.startswith("one\n")
            assert "atropos" not in (await fork.exec("ls -A /")).output


@pytest.mark.parametrize(
    "left_running",
    [
        "cd /app; (while :; do echo x >>log; sleep 0.01; done) >/dev/null 2>&1 & :",
        "exec 7>>/app/log; (while :; do echo x >&7; sleep 0.01; done) >/dev/null 2>&1 & :",
        "cd /app; python3 -c 'import time; time.sleep(600)' >/dev/null 2>&1 & :",
    ],
)
async def test_where_a_process_would_notice_the_files_are_copied(crun_box, left_running):
    await crun_box.write_file("log", b"begun\n")
    shell = await crun_box.session()
    await shell.run(left_running)
    async with crun_box.fork(1) as (fork,):
        assert frozen(crun_box) == 0
        seen = await fork.read_file("log")
        await crun_box.exec("echo later >>log; echo new >new")
        await asyncio.sleep(0.3)
        assert await fork.read_file("log") == seen, "what the parent writes is its own"
        ours = await crun_box.read_file("log")
        assert ours.startswith(seen) and b"later" in ours
        assert (await shell.run("jobs -p | wc -l")).output == "1\n"


HEADLESS = """
import ctypes, itertools, threading, time
def beat():
    for number in itertools.count():
        open("beat", "w").write(str(number))
        time.sleep(0.2)
threading.Thread(target=beat).start()
ctypes.CDLL(None).pthread_exit(None)
"""


async def test_a_process_whose_first_thread_has_ended_would_notice_too(crun_box):
    await crun_box.exec(["sh", "-c", 'python3 -c "$0" & until test -s beat; do sleep 0.1; done', HEADLESS], timeout=60)
    async with crun_box.fork(1):
        await crun_box.exec("cp beat before")
        goes_on = await crun_box.exec("while cmp -s beat before; do sleep 0.1; done", timeout=60)
        assert goes_on.ok, "it writes where it did"


# A program that is to be exchanged for another one waits, in the kernel, for its threads to end; one is held.
HELD = """
import ctypes, os, threading, time
read, write = os.pipe()
if os.fork() == 0:
    def say():
        os.write(write, b"%d" % threading.get_native_id())
        time.sleep(1000)
    threading.Thread(target=say, daemon=True).start()
    while not os.path.exists("held"):
        time.sleep(0.01)
    open("begun", "x")
    os.execv("/bin/true", ["true"])
SEIZE, AT_ITS_END = 0x4206, 0x40
ctypes.CDLL(None).ptrace(SEIZE, int(os.read(read, 99)), None, AT_ITS_END)
open("held", "x")
time.sleep(1000)
"""


async def test_what_cannot_be_stopped_hinders_no_fork(crun_box):
    await crun_box.exec(["sh", "-c", 'python3 -c "$0" & until test -e begun; do sleep 0.1; done', HELD], timeout=60)
    await asyncio.sleep(0.1)
    async with crun_box.fork(1) as (fork,):
        assert (await fork.exec("ls")).output == "begun\nheld\n"
        assert frozen(crun_box) == 0, "copied"
    assert (await crun_box.exec("echo well")).output == "well\n"


# It has the pipes that make one a session's shell, and a file in its memory that it may write to as soon as it asks.
LIKE_A_SHELL = """
import mmap, os, time
memory = mmap.mmap(os.open("file", os.O_RDWR), 4096, prot=mmap.PROT_READ)
os.closerange(3, 99)
os.dup2(1, 3), os.dup2(1, 4)
os.chdir("/")
open("/dev/shm/mapped", "x").close()
time.sleep(1000)
"""


async def test_memory_that_may_be_written_to_later_is_looked_for(crun_box, monkeypatch):
    asked = []
    monkeypatch.setattr(forking, "_make_read_only", asked.append)
    await crun_box.write_file("file", b"0" * 4096)
    await crun_box.write_file("/tmp/like.py", LIKE_A_SHELL.encode())
    shell = await crun_box.session()
    running = asyncio.create_task(shell.run("exec python3 /tmp/like.py", timeout=600))
    await crun_box.exec("until test -e /dev/shm/mapped; do sleep 0.1; done")
    async with crun_box.fork(1):
        assert not asked, "some kernels let it be made read-only under such memory"
    running.cancel()


async def test_names_of_mapped_files_with_line_ends_hinder_no_fork(crun_box):
    shell = await crun_box.session()
    loaded = """
    library=$(find /lib/ /usr/lib/ -name libnss_compat.so.2 | head -1)
    cp $library "${library%compat*}"$'a\\u2028b.so.2' && printf 'passwd: files a\\u2028b\\n' >/etc/nsswitch.conf
    echo ~nobody_of_this_name >file; grep -c $'a\\u2028b' /proc/$$/maps >/dev/shm/count"""
    assert (await shell.run(loaded)).output == ""
    assert int(await crun_box.read_file("/dev/shm/count")) > 0
    async with crun_box.fork(1) as (fork,):
        assert await fork.read_file("file") == b"~nobody_of_this_name\n"
        assert frozen(crun_box) == 1, "nothing is copied"


async def test_nothing_inside_can_write_to_what_is_frozen(crun_box):
    """What a shell does by itself before its next command, it still does in the directory that it was in."""
    shell = await crun_box.session()
    await shell.run("mkdir d; cd d; echo kept >file; trap 'echo changed >>file' DEBUG")
    async with crun_box.fork(1) as (fork,):
        assert frozen(crun_box) == 1
        before = await fork.read_file("d/file")
        await shell.run("true")
        assert await fork.read_file("d/file") == before
        assert await crun_box.read_file("d/file") != before, "where it is now, it may"


async def test_forks_of_forks_fifty_deep(crun_box):
    async with AsyncExitStack() as stack:
        box, lines = crun_box, b""
        for depth in range(50):
            lines += b"%d\n" % depth
            await box.write_file("file", lines)
            await box.exec(f"mkdir d{depth}; rm -rf d{depth - 2}")
            (box,) = await stack.enter_async_context(box.fork(1))
        assert await box.read_file("file") == lines
        assert (await box.exec("ls")).output == "d48\nd49\nfile\n"


async def test_a_sandbox_is_forked_again_and_again(crun_box):
    for time in range(50):
        await crun_box.write_file("file", b"%d" % time)
        async with crun_box.fork(1) as (fork,):
            assert await fork.read_file("file") == b"%d" % time
    async with crun_box.fork(1):
        layers = len(crun_box.container.bundle.stack)
        async with crun_box.fork(1) as (fork,):
            assert await fork.read_file("file") == b"49"
        assert len(crun_box.container.bundle.stack) == layers, "what has not changed needs no layer"


async def test_removed_replaced_and_odd_files_are_as_they_were(crun_box):
    await crun_box.upload(archive({"tree/a": b"1", "tree/b": b"2"}), "/app")
    make = (
        "rm -rf tree; mkdir tree; echo 3 >tree/c; ln -s nowhere tree/l; mkfifo tree/p; ln tree/c tree/h;"
        "rm -rf /usr/games; chmod 1777 tree; chown 7:8 /app 2>/dev/null; echo mine >/etc/hosts; chmod 700 /; true"
    )
    assert (await crun_box.exec(make)).ok
    look = "stat -c '%n %F %a %u %h' tree tree/* /; cat tree/c; ls /usr/games 2>&1; cat /etc/hosts | wc -l"
    before = (await crun_box.exec(look)).output
    async with crun_box.fork(1) as (fork,):
        assert (await crun_box.exec(look)).output == before
        assert (await fork.exec(look)).output.replace("\n3\n", "\n1\n") == before.replace("\n3\n", "\n1\n")


async def test_trees_are_moved_in_and_out_after_a_fork(crun_box):
    await crun_box.write_file("file", b"1")
    async with crun_box.fork(1):
        await crun_box.upload(archive({"new": b"2"}), "/app")
        assert (await crun_box.exec("cat new")).output == "2"
        assert b"new" in await crun_box.download("/app")


async def test_a_parent_may_go_first(crun_backend, base_image):
    async with AsyncExitStack() as forks:
        async with crun_backend.open(SandboxSpec(base_image, workdir="/app")) as parent:
            await parent.write_file("file", b"1")
            (fork,) = await forks.enter_async_context(parent.fork(1))
            folder = parent.container.bundle.directory.path
        assert await fork.read_file("file") == b"1"
    left = {path.name for path in folder.iterdir()} - {"layers"}  # the images' short paths, with containerd's store
    assert left == {"cgroup", "crun", "etc", "executor", "lock"}


async def test_a_dead_sandbox_is_not_forked(crun_box):
    await crun_box.stop()
    with pytest.raises(SandboxDied):
        async with crun_box.fork(1):
            pass


async def test_folders_of_this_machine_stay_with_the_forked_one_and_come_to_its_branches(
    crun_backend, base_image, tmp_path
):
    (tmp_path / "file").write_text("here")
    spec = SandboxSpec(base_image, workdir="/app", mounts={"/opt/tools/own": tmp_path})
    async with crun_backend.open(spec) as box:
        await box.write_file("made", b"1")
        async with box.fork(1) as (branch,):
            for one in (box, branch):
                assert (await one.exec("cat /opt/tools/own/file made")).output == "here1"
        await box.reset()
        assert (await box.exec("cat /opt/tools/own/file; ls -A")).output == "here"
