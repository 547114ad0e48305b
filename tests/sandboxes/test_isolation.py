"""What isolates a sandbox that crun has started: all that the Docker daemon's own containers have, item by item.

Each item is looked at from inside of both, side by side; what must differ says why: docs/sandbox-internals.md.
"""

import asyncio
import os
import re
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from sandboxes.base import Limits, SandboxSpec

pytestmark = [
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls are given by their numbers there"),
]

LIMITS = Limits(cpus=0.5, memory_mb=200, pids=77, disk_mb=300)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def boxes(base_image, make_backend):
    """One of the Docker daemon's and one of crun's."""
    async with AsyncExitStack() as stack:
        found = []
        for kind in ("docker", "crun"):
            backend = await stack.enter_async_context(await make_backend(kind))
            spec = SandboxSpec(base_image, limits=LIMITS)
            async with backend.open(spec):
                pass  # crun compiles the filter of calls for the first one, the others take it as it is
            found.append(await stack.enter_async_context(backend.open(spec)))
        yield found


async def both(boxes, command: str | list[str], **options) -> tuple[str, str]:
    """What a command prints in either."""
    theirs, ours = [(await box.exec(command, **options)).output for box in boxes]
    return theirs, ours


async def fields(boxes, process: str, pattern: str) -> tuple[str, str]:
    return await both(boxes, f"grep -E '{pattern}' /proc/{process}/status | tr -s '\\t ' ' '")


async def test_namespaces_are_its_own(boxes):
    theirs, ours = await both(boxes, "readlink /proc/self/ns/*")
    here = {os.readlink(f"/proc/self/ns/{kind}") for kind in os.listdir("/proc/self/ns")}  # noqa: PTH115, PTH208
    own = {space.partition(":")[0] for space in set(ours.split()) - here}
    assert {space.partition(":")[0] for space in set(theirs.split()) - here} <= own
    assert own >= {"cgroup", "ipc", "mnt", "net", "pid", "uts"}


@pytest.mark.parametrize("process", ["self", "1"])
async def test_capabilities_are_as_docker_gives_them(boxes, process):
    theirs, ours = await fields(boxes, process, "^Cap(Bnd|Amb|Eff|Prm|Inh)")
    assert ours == theirs
    assert set(re.findall(r"Cap(?:Inh|Amb): (\w+)", ours)) == {"0" * 16}


@pytest.mark.parametrize("process", ["self", "1"])
async def test_no_privileges_can_be_gained_and_calls_are_filtered(boxes, process):
    theirs, ours = await fields(boxes, process, "^(NoNewPrivs|Seccomp)")
    assert ours == theirs
    assert "NoNewPrivs: 1" in ours and "Seccomp: 2" in ours


CALLS = """
import ctypes, errno, os, signal
libc = ctypes.CDLL(None, use_errno=True)
refused = []
left_out = (15, 34, 35, 56, 57, 58, 60, 61, 231, 247, 271, 435)  # which end, wait or fork
for number in [n for n in (*range(335), *range(424, 480)) if n not in left_out]:
    pid = os.fork()
    if pid == 0:
        signal.alarm(2)
        os.setpgid(0, 0)
        for fd in range(3):
            os.close(fd)
        done = libc.syscall(number, -1, -1, -1, -1, -1, -1)
        os._exit(ctypes.get_errno() if done == -1 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS) else 0)
    if (error := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) > 0:
        refused.append(f"{number}:{errno.errorcode[error]}")
print(*refused)
"""


async def test_the_same_system_calls_are_refused_and_in_the_same_way(boxes):
    theirs, ours = [
        dict(call.split(":") for call in output.split()) for output in await both(boxes, ["python3", "-c", CALLS])
    ]
    assert ours == theirs
    assert {"165", "166", "175", "246", "272", "304", "321"} <= ours.keys(), "mount, kexec, unshare, bpf and others"
    assert len(ours) < 150, "the others may be made"
    new = "452"  # fchmodat2: at EPERM `tar -x` gives up, where the libc knows of the call
    assert ours.get(new) != "EPERM"


HIDDEN = (
    "/proc/asound /proc/acpi /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list /proc/sched_debug /proc/scsi"
)


async def test_masked_paths_show_nothing(boxes):
    look = f"for p in {HIDDEN} /sys/firmware; do echo $p; ls -A $p 2>&1; [ -d $p ] || head -c 100 $p; done 2>&1"
    theirs, ours = await both(boxes, look)
    assert ours == theirs
    shown = re.sub(r"ls: cannot access '\\S+': No such file or directory\n", "", ours)
    assert set(shown.split()) - {f"'{path}'" for path in HIDDEN.split()} >= {"/sys/firmware"}
    assert (await boxes[1].exec("ls /sys/firmware | wc -l; cat /proc/keys | wc -c")).output == "0\n0\n"


async def test_what_is_read_only_there_is_here(boxes):
    look = "awk '$6 ~ /(^|,)ro(,|$)/ {print $5}' /proc/self/mountinfo"
    theirs, ours = [set(output.split()) for output in await both(boxes, look)]
    assert theirs - ours == set()
    assert ours >= {"/proc/1", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/sys", "/sys/fs/cgroup"}
    for write in ("echo x >/proc/sys/kernel/hostname", "touch /sys/kernel/x", "chmod 777 /proc/keys"):
        assert "Read-only file system" in (await boxes[1].exec(write)).output


async def test_mounts_are_the_same_but_for_names_of_hosts(boxes):
    look = "awk '{print $5, $(NF-2)}' /proc/self/mountinfo | sed 's/ cgroup.*/ cgroup/; s/ devtmpfs/ tmpfs/'"  # null
    theirs, ours = [set(output.splitlines()) for output in await both(boxes, look)]
    bound = {line for line in theirs if re.match(r"/etc/(hosts|hostname|resolv.conf) ", line)}
    assert ours - theirs == set()
    assert {line.split()[0] for line in theirs - bound - ours} <= {"/sys/fs/cgroup/rdma", "/sys/fs/cgroup/unified"}


async def test_devices_are_the_same(boxes):
    theirs, ours = await both(boxes, "cd /dev && find . -printf '%p %y %m %U:%G %l\\n' | grep -v '/pts/' | sort")
    assert set(ours.splitlines()) - set(theirs.splitlines()) <= {"./core l 777 0:0 /proc/kcore"}, "which is masked"
    assert {line.split()[0] for line in ours.splitlines()} >= {"./null", "./zero", "./urandom", "./tty", "./shm"}
    rules = "cat /sys/fs/cgroup/devices/devices.list 2>/dev/null"
    theirs, ours = [set(output.splitlines()) for output in await both(boxes, rules)]
    assert ours <= theirs, "what may be used of the machine's devices"
    assert not (await boxes[1].exec("mknod /x b 8 0")).ok


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("memory/memory.limit_in_bytes", "memory.max"),
        ("memory/memory.memsw.limit_in_bytes", "memory.swap.max"),
        ("pids/pids.max", "pids.max"),
        ("cpu/cpu.cfs_quota_us", "cpu.max"),
        ("cpu/cpu.cfs_period_us", "cpu.max"),
        ("cpu/cpu.shares", "cpu.weight"),
    ],
)
async def test_control_groups_limit_the_same(boxes, old, new):
    theirs, ours = await both(boxes, f"cd /sys/fs/cgroup; cat {old} 2>/dev/null || cat {new}")
    assert ours == theirs
    assert re.match(r"[\d.max ]+\n$", ours), ours


async def test_limits_of_processes_are_the_same(boxes):
    for process in ("self", "1"):
        theirs, ours = await both(boxes, f"cat /proc/{process}/limits")
        assert ours == theirs
    assert "Max file size             314572800            314572800" in ours


async def test_the_network_is_loopback_alone(boxes):
    for look in ("ls /sys/class/net", "cat /proc/net/route | wc -l", "cat /proc/net/if_inet6 | wc -l"):
        theirs, ours = await both(boxes, look)
        assert ours == theirs
    up = "import socket as s; o = s.create_server(('127.0.0.1', 0)); s.create_connection(o.getsockname()); print('up')"
    assert await both(boxes, ["python3", "-c", up]) == ("up\n", "up\n")
    assert (await boxes[1].exec("ls /sys/class/net")).output == "lo\n"


async def test_users_and_names_are_the_same(boxes):
    for look in ("id", "stat -c '%u %g' /proc/1", "cat /proc/self/uid_map", "cat /proc/1/oom_score_adj", "umask"):
        theirs, ours = await both(boxes, look)
        assert ours == theirs, look
    assert (await boxes[1].exec("hostname")).output == "sandbox\n"


async def test_names_of_this_machine_are_found(boxes):
    for name, found in (("'localhost'", "127.0.0.1 ::1"), ("s.gethostname()", "127.0.0.1")):
        look = f"import socket as s; print(*sorted({{a[4][0] for a in s.getaddrinfo({name}, 80)}}))"
        assert await both(boxes, ["python3", "-c", look]) == (f"{found}\n",) * 2


async def test_the_table_of_mounts_is_where_old_programs_look(boxes):
    assert await both(boxes, "readlink /etc/mtab; grep -c ^overlay /etc/mtab") == ("/proc/mounts\n1\n",) * 2


async def test_the_environment_is_the_same_but_for_the_name(boxes):
    theirs, ours = [sorted(output.splitlines()) for output in await both(boxes, "env")]
    assert [line for line in ours if "HOSTNAME" not in line] == [line for line in theirs if "HOSTNAME" not in line]


async def test_no_two_see_each_others_processes(boxes):
    first, second = await asyncio.gather(*(box.exec("sleep 0.3; set -- /proc/[0-9]*; echo $#") for box in boxes))
    assert int(first.output) == int(second.output) < 10
