"""What is counted of a container's files; in containers it is tested in test_disk.py."""

import asyncio
import mmap
import os
import sys

import pytest

from sandboxes.docker.executor import disk_usage as module
from sandboxes.docker.executor.disk_usage import HostPaths, disk_usage

KB = 1024


@pytest.fixture
def host_paths(tmp_path):
    """Of this process, which stands for a container's first."""
    return HostPaths((tmp_path,), os.getpid())


async def test_blocks_and_inodes_are_counted_however_deep_they_lie(host_paths, tmp_path):
    before = await disk_usage(host_paths)
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):  # deeper than a path can be long
        os.mkdir("d" * 50, dir_fd=deep)
        deep, above = os.open("d" * 50, os.O_RDONLY, dir_fd=deep), deep
        os.close(above)
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=deep)
    os.posix_fallocate(file, 0, 400 * KB)
    os.close(file)
    os.close(deep)
    after = await disk_usage(host_paths)
    assert after.files - before.files == 301
    assert 400 * KB <= after.bytes - before.bytes < 400 * KB + 302 * 8 * KB


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what is mapped")
@pytest.mark.parametrize("mapped", [False, True])
async def test_a_deleted_file_counts_as_long_as_it_is_there(host_paths, tmp_path, mapped):
    before = await disk_usage(host_paths)
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.unlink("file", dir_fd=(folder := os.open(tmp_path, os.O_RDONLY)))
    os.close(folder)
    os.write(file, bytes(400 * KB))
    kept = mmap.mmap(file, 400 * KB) if mapped else os.dup(file)
    os.close(file)
    during = await disk_usage(host_paths)
    assert (during.bytes - before.bytes, during.files - before.files) == (400 * KB, 1)
    kept.close() if isinstance(kept, mmap.mmap) else os.close(kept)
    assert await disk_usage(host_paths) == before


async def test_what_is_in_memory_alone_is_no_disks(host_paths):
    before = await disk_usage(host_paths)
    file = os.memfd_create("memory")
    os.write(file, bytes(400 * KB))
    assert await disk_usage(host_paths) == before
    os.close(file)


async def test_more_open_files_than_are_looked_at_are_told(host_paths, monkeypatch):
    monkeypatch.setattr(module, "_MOST_OPEN", 2)
    assert not (await disk_usage(host_paths)).whole


async def test_children_are_looked_into(tmp_path):
    script = (
        "f=open('x','wb'); import os; os.unlink('x'); f.write(bytes(409600)); f.flush(); print(1, flush=True); input()"
    )
    pipe = asyncio.subprocess.PIPE
    first = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'python3 -c "{script}"; true'), cwd=tmp_path, stdin=pipe, stdout=pipe
    )
    await first.stdout.readline()
    assert (await disk_usage(HostPaths((tmp_path,), first.pid))).bytes >= 400 * KB
    first.stdin.close()
    await first.wait()


ENDED = "ctypes.CDLL(None).pthread_exit(None)"
HOLDING = """
import ctypes, os, threading, time
def hold():
    file = os.open("x", os.O_WRONLY | os.O_CREAT)
    os.unlink("x")
    os.write(file, bytes(409600))
    open("held", "x").close()
    time.sleep(600)
"""


async def test_what_a_thread_holds_counts_when_the_first_one_has_ended(tmp_path):
    script = HOLDING + "threading.Thread(target=hold).start()\n" + ENDED
    first = await asyncio.create_subprocess_exec(
        *("sh", "-c", '"$0" -c "$1" & read -r _; kill -9 $!', sys.executable, script),
        cwd=tmp_path,
        stdin=asyncio.subprocess.PIPE,
    )
    while not (tmp_path / "held").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert (await disk_usage(HostPaths((tmp_path,), first.pid))).bytes >= 400 * KB
    await first.communicate(b"\n")


NUMBERED_AGAIN = """
import os, threading
from sandboxes.docker.executor.disk_usage import _open_files
def numbers_from(last):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(last))
numbers_from(20000)
if os.fork() == 0:
    numbers_from(100)
    ended = threading.Event()
    threading.Thread(target=ended.wait).start()
    first = os.getpid()
    assert min(map(int, os.listdir("/proc/self/task"))) < first
    print(f"/proc/{first}/exe" in _open_files(first))
    ended.set()
else:
    os.wait()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace of processes")
async def test_a_process_goes_by_its_own_number_though_a_thread_has_a_lower_one():
    run = await asyncio.create_subprocess_exec(
        *("unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", NUMBERED_AGAIN),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await run.communicate()
    assert output == b"True\n"


async def test_a_folder_that_is_gone_holds_nothing(host_paths, tmp_path):
    assert await disk_usage(HostPaths((tmp_path / "gone",), os.getpid())) == module.DiskUsage(0, 0)


async def test_a_look_that_takes_too_long_is_not_whole(host_paths, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_S", 0.0)
    assert not (await disk_usage(host_paths)).whole


async def test_programs_that_run_are_looked_at(host_paths):
    assert f"/proc/{os.getpid()}/exe" in module._open_files(os.getpid())


async def test_a_machine_of_another_language_counts_as_well(host_paths, tmp_path, monkeypatch):
    (tmp_path / "du").write_text('#!/bin/sh\n[ "$LC_ALL" = C ] && echo "7\ttotal" || echo "7\tinsgesamt"\n')
    (tmp_path / "du").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setattr(module, "_deleted_file_sizes", lambda _: ([], True))
    assert (await disk_usage(host_paths)).bytes == 7
