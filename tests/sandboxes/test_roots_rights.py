"""What root may do in a sandbox: all that tasks made for Docker count on, and nothing to what watches its commands."""

import asyncio
import os

import pytest
from attacks import LIMITS as TAKE_LIMITS
from backends import STARTERS
from chores import CHORES
from naps import count_of
from stopwatch import Stopwatch

from sandboxes.base import Limits, SandboxSpec
from sandboxes.docker.executor.disk_usage import descendants

ONLY = STARTERS
IN_ONE_LOOP = pytest.mark.asyncio(loop_scope="session")


async def test_root_does_its_usual_chores(box):
    for number, (chore, (command, printed)) in enumerate(CHORES.items()):
        done = await box.exec(f"mkdir {number}; cd {number}; {command}")
        assert done.output.endswith(printed), f"{chore}: {done.output}"


@IN_ONE_LOOP
async def test_files_of_others_are_written_for_root_and_stay_theirs(kept_box):
    await kept_box.exec("echo old >a; chmod 440 a; chown games:mail a; mkdir -m 700 d; chown games d")
    await kept_box.write_file("a", b"new\n")
    await kept_box.write_file("d/b", b"new\n")
    assert (await kept_box.exec("cat a d/b; stat -c '%U:%G %a' a")).output == "new\nnew\ngames:mail 644\n"
    assert await kept_box.read_file("a") == b"new\n"


async def test_without_capabilities_root_has_no_rights(backend, base_image):
    async with backend.open(SandboxSpec(base_image, limits=Limits(capabilities="none"))) as box:
        status = (await box.exec("grep Cap /proc/self/status")).output
        assert [int(line.split()[1], 16) for line in status.splitlines()] == [0] * 5
        for command in ("chown nobody /etc/passwd", "su games -s /bin/true", "touch a; chmod 444 a; echo >>a"):
            assert not (await box.exec(command)).ok, command
        await box.exec("mkdir d; chmod 500 d")
        with pytest.raises(PermissionError):
            await box.write_file("/d/x", b"")


@IN_ONE_LOOP
async def test_there_are_no_devices_packets_and_logs_of_the_machine(kept_box):
    for command in ("mknod x b 8 0", "mknod x c 1 3", "mount -t tmpfs none /mnt", "hostname other"):
        assert not (await kept_box.exec(command)).ok, command
    for kind, why in (
        ("17, 3", "Operation not permitted"),
        ("2, 3, 1", "not permitted"),
        ("16, 3, 9", "not supported"),
    ):
        done = await kept_box.exec(["python3", "-c", f"import socket; socket.socket({kind})"])
        assert why in done.output, kind
    assert (await kept_box.exec(["python3", "-c", "import socket; socket.socket(16, 3, 0)"])).ok


# push rbx; mov eax, 102; mov ebx, 1; xor ecx, ecx; int 0x80; pop rbx; ret: i386's socketcall(SYS_SOCKET, NULL)
OLD_CALL = """
import ctypes, mmap
code = bytes.fromhex("53b866000000bb0100000031c9cd805bc3")
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
"""


@IN_ONE_LOOP
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="has the calls of i386")
async def test_old_programs_open_no_socket_whose_kind_nobody_sees(kept_box):
    assert (await kept_box.exec(["python3", "-c", OLD_CALL])).output == "-38\n"  # ENOSYS; EFAULT where it is made


WRITES = "for file in oom_score_adj autogroup clear_refs sched comm mem; do echo 1000 >/proc/1/$file; done 2>/dev/null"


@IN_ONE_LOOP
async def test_root_takes_nothing_from_process_1_and_the_monitors(kept_box):
    ours = "cat /proc/1/oom_score_adj /proc/1/limits /proc/$PPID/limits; ps -o ni,cls -p 1 -p $PPID"
    before = (await kept_box.exec(ours)).output
    await kept_box.exec(["python3", "-c", TAKE_LIMITS])
    await kept_box.exec(WRITES)
    assert (await kept_box.exec(ours)).output == before
    for name in ("environ", "maps", "mem", "fd/0"):
        for process in ("1", "$PPID"):
            assert not (await kept_box.exec(f"head -c 1 /proc/{process}/{name}")).ok, (process, name)


@IN_ONE_LOOP
async def test_a_monitor_that_root_kills_takes_its_command_along(kept_box):
    other = asyncio.create_task(kept_box.exec("sleep 1; echo other"))
    escape = "(su games -s /bin/sh -c 'exec setsid sleep 4332' >/dev/null 2>&1 &); sleep 0.2; kill -9 $PPID; sleep 60"
    done = await kept_box.exec(escape, timeout=20)
    assert (done.exit_code, done.timed_out) == (137, False)
    assert (await kept_box.exec(count_of(4332))).output == "0\n"
    assert (await other).output == "other\n"


@IN_ONE_LOOP
async def test_a_monitor_that_root_stops_goes_on(kept_box):
    done = await kept_box.exec("kill -STOP $PPID; echo done", timeout=20)
    assert (done.output, done.exit_code) == ("done\n", 0)
    again = "(setsid sh -c 'while :; do kill -STOP '$PPID'; done' &) 2>/dev/null; sleep 60"
    watch = Stopwatch()
    assert (await kept_box.exec(again, timeout=1)).timed_out
    assert watch.seconds < 10


@pytest.mark.skipif(os.geteuid() != 0, reason="looks at processes from outside")
async def test_what_root_does_to_its_monitors_ends_nobody_elses(backend, box, base_image):
    async with backend.open(SandboxSpec(base_image)) as other:
        running = asyncio.create_task(other.exec("sleep 0.5; echo fine"))
        await asyncio.sleep(0.2)
        await box.exec("kill -9 -1")
        assert (await running).output == "fine\n"
        assert len(list(descendants(box.container.host_paths.process))) <= 2
