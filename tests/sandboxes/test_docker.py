"""What only containers do: isolation, limits, images, and nothing left behind."""

import asyncio
import contextlib
import errno
import os
import platform
import re
import signal
import sys
import time
from dataclasses import replace

import aiodocker
import pytest
import pytest_asyncio
from aiodocker.exceptions import DockerError
from earlier_life import COUNT
from naps import count_of
from small_archives import archive

from sandboxes.base import Limits, SandboxDied, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.daemon.container import DaemonContainer
from sandboxes.docker.executor.disk_usage import descendants
from sandboxes.owner import PREFIX

pytestmark = pytest.mark.docker


IN_ONE_LOOP = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(params=["docker", "crun"])
def starter(request) -> str:
    """What starts containers: the Docker daemon, or crun past it."""
    return request.param


@pytest_asyncio.fixture(loop_scope="session")
async def either_backend(starter, make_backend, base_image):
    async with await make_backend(starter) as backend:
        yield backend


@pytest_asyncio.fixture(loop_scope="session")
async def either_box(starter, kept_containers, base_image):
    """A box that the test isn't the first to have."""
    spec = SandboxSpec(base_image, workdir="/app", env={"COLOUR": "green"})  # that of `kept_box`
    return await (await kept_containers(starter, spec)).emptied()


@pytest.fixture
async def daemon():
    async with aiodocker.Docker() as client:
        yield client


async def containers(daemon: aiodocker.Docker, owner: str) -> list[str]:
    found = await daemon.containers.list(all=True, filters={"label": [f"{PREFIX}owner={owner}"]})
    return [container.id for container in found]


@IN_ONE_LOOP
class TestIsolation:
    async def test_there_is_no_network(self, either_box):
        assert (await either_box.exec("ls /sys/class/net")).output == "lo\n"
        script = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=3)"
        result = await either_box.exec(["python3", "-c", script])
        assert "Network is unreachable" in result.output

    @pytest.mark.parametrize("user", [None, "root", "nobody"])
    async def test_commands_have_roots_usual_capabilities_or_none_and_cannot_gain_any(self, either_box, user):
        status = (await either_box.exec("cat /proc/self/status", user=user)).output
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        roots = 0x800405FB  # Docker's default but for net_raw, mknod and audit_write
        held = {name: int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        now = 0 if user == "nobody" else roots
        assert held == {"CapInh": 0, "CapPrm": now, "CapEff": now, "CapBnd": roots, "CapAmb": 0}
        assert fields["NoNewPrivs"] == "1"
        assert fields["Seccomp"] == "2"

    async def test_root_becomes_another_user_only_where_the_spec_says_so(self, either_backend, base_image):
        become = ["python3", "-c", "import os; os.setgid(65534); os.setuid(65534); print(os.getuid())"]
        without = SandboxSpec(base_image, limits=Limits(capabilities="none"))
        async with either_backend.open(without) as box:
            assert "Operation not permitted" in (await box.exec(become)).output
        async with either_backend.open(replace(without, switch_users=True)) as box:
            assert (await box.exec(become)).output == "65534\n"
            caps = "grep -E 'Cap(Prm|Eff|Bnd)|NoNewPrivs' /proc/self/status | tr -s '\\t\\n' ' '"
            two = "00000000000000c0"  # setgid and setuid
            shown = (await box.exec(caps)).output
            assert shown == f"CapPrm: {two} CapEff: {two} CapBnd: {two} NoNewPrivs: 1 "
            none = "0" * 16
            shown = (await box.exec(caps, user="nobody")).output
            assert shown == f"CapPrm: {none} CapEff: {none} CapBnd: {two} NoNewPrivs: 1 "

    async def test_nobody_inside_becomes_the_executors_user(self, either_box):
        """It could take limits of process 1 away and stop monitors."""
        assert (await either_box.exec(["python3", "-c", _BECOME])).output == "65534 65534\n"

    @pytest.mark.skipif(os.geteuid() != 0, reason="reaches into containers from outside")
    async def test_a_command_whose_monitor_is_killed_dies_with_all_it_started(self, either_box):
        daemon = "(setsid env -i sleep 4321 >/dev/null 2>&1 </dev/null &)"
        before = set(descendants(either_box.container.host_paths.process))
        running = asyncio.create_task(either_box.exec(f"{daemon}; sleep 60", timeout=20))
        await asyncio.sleep(0.3)
        monitor = next(one for one in descendants(either_box.container.host_paths.process) if one not in before)
        os.kill(monitor, signal.SIGKILL)
        result = await running
        assert (result.exit_code, result.timed_out) == (137, False)
        assert (await either_box.exec(count_of(4321))).output == "0\n"

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="calls are given by their numbers there")
    async def test_what_seccomp_forbids_fails(self, either_box):
        calls = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.syscall({}), ctypes.get_errno())"
        for name, call in {
            "unshare a user namespace": "272, 0x10000000",
            "add a key": "248, b'user', b'name', b'x', 1, -3",
            "open by handle": "304, 0, None, 0",
            "perf events": "298, None, 0, -1, -1, 0",
            "bpf": "321, 0, None, 0",
        }.items():
            assert (await either_box.exec(["python3", "-c", calls.format(call)])).output == "-1 1\n", name  # EPERM

    async def test_there_is_no_daemon_and_no_place_of_the_machine_in_it(self, either_box):
        assert "No such file" in (await either_box.exec("ls /var/run/docker.sock /run/docker.sock")).output
        if isinstance(either_box.container, DaemonContainer):
            async with aiodocker.Docker() as daemon:
                shown = await daemon.containers.container(either_box.id).show()
            assert (shown["Mounts"], shown["HostConfig"]["Binds"]) == ([], None)
        mounted = (
            await either_box.exec(
                "grep -v ' - \\(overlay\\|proc\\|sysfs\\|tmpfs\\|devpts\\|mqueue\\|cgroup2*\\) '"
                " /proc/self/mountinfo | grep -v ' /null /proc/' | cut -d' ' -f5"  # what masks paths
            )
        ).output.split()
        assert set(mounted) <= {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}  # the Docker daemon's own
        assert not (await either_box.exec("echo x >/proc/sys/kernel/hostname || echo x >/sys/x")).ok

    @pytest.mark.parametrize(
        "attack", ["kill -9 -1", "kill -9 1", "kill -STOP 1", "kill -9 $PPID", "kill -9 -1; exit 3"]
    )
    async def test_the_executor_cannot_be_killed_from_inside(self, either_box, attack):
        await either_box.exec(attack, timeout=10)
        assert (await either_box.exec("echo fine", timeout=10)).output == "fine\n"

    @pytest.mark.parametrize(
        "attack",
        [
            "echo forged >/proc/1/fd/1",
            "cat /proc/1/environ",
            "cat /proc/1/fd/0",
            "echo x >/proc/1/mem",
        ],
    )
    async def test_the_executors_stream_is_out_of_reach(self, either_box, attack):
        result = await either_box.exec(attack, timeout=10)
        assert not result.ok
        assert "Permission denied" in result.output or "Read-only" in result.output

    async def test_files_cannot_be_written_into_the_executors_stream(self, either_box):
        for path in ("/proc/self/fd/1", "/proc/1/fd/1", "/proc/self/mem", "/proc/self/oom_score_adj", "/dev/stdout"):
            with pytest.raises(OSError, match=r"proc|stdout"):
                await either_box.write_file(path, b"0")
        assert (await either_box.exec("echo fine")).output == "fine\n"

    async def test_the_executor_leaves_no_file(self, either_box):
        assert "atropos" not in (await either_box.exec("ls -a /")).output

    async def test_a_timeout_kills_daemons_that_cleared_their_environment(self, either_box):
        daemon = "(setsid env -i sh -c 'env -i sleep 4321 & setsid env -i sleep 4321' >/dev/null 2>&1 </dev/null &)"
        count = count_of(4321)
        running = asyncio.create_task(either_box.exec(f"{daemon}; sleep 60", timeout=1))
        await asyncio.sleep(0.5)
        assert (await either_box.exec(count)).output == "2\n"
        assert (await running).timed_out
        assert (await either_box.exec(count)).output == "0\n"

    async def test_a_link_does_not_lead_to_the_host(self, either_box, tmp_path):
        (tmp_path / "secret").write_text("host")
        await either_box.exec(["ln", "-s", str(tmp_path / "secret"), "link"])
        with pytest.raises(FileNotFoundError):
            await either_box.read_file("link")
        with pytest.raises(FileNotFoundError):
            await either_box.download("link/x")


@IN_ONE_LOOP
class TestFilesOfUsers:
    async def test_files_are_reached_with_the_groups_of_their_user_alone(self, either_backend, base_image):
        secret = "echo x >/secret; chmod 640 /secret; mkdir -m 770 /ours; mkdir -m 777 /all; echo old >/all/old"
        async with either_backend.open(SandboxSpec(base_image, user="games")) as box:
            assert (await box.exec(secret, user="root")).ok
            with pytest.raises(PermissionError):
                await box.read_file("/secret")
            for path in ("/ours/x", "/all/old", "/new"):
                with pytest.raises(PermissionError):
                    await box.write_file(path, b"x")
            await box.write_file("/all/new", b"1")
            await box.write_file("/all/new", b"22", mode=0o755)
            seen = await box.exec("cat /all/old; stat -c '%U %a %s' /all/new; ls /all; echo here >/dev/stderr")
            assert seen.output == "old\ngames 755 2\nnew\nold\nhere\n"

    async def test_a_file_that_must_stay_itself_is_written_in_its_place(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image, workdir="/app")) as box:
            await box.exec("echo old >a; ln a b; mkdir d; echo old >d/c; ln -s d/c c")
            for name in ("a", "c", "/etc/hosts"):
                await box.write_file(name, b"new\n")
            assert (await box.exec("cat b d/c /etc/hosts; readlink c")).output == "new\nnew\nnew\nd/c\n"

    async def test_a_large_file_is_replaced_and_its_room_is_free(self, either_box):
        await either_box.exec("head -c 70M /dev/urandom >/app/large; head -c 70M /dev/urandom >/app/two; ln two names")
        await either_box.write_file("large", b"new")
        assert await either_box.read_file("large") == b"new"
        with pytest.raises(OSError, match="large") as caught:
            await either_box.write_file("two", b"new")
        assert caught.value.errno == errno.EFBIG
        shown = await either_box.exec(f"stat -c %s two names; ls -A; {COUNT}; du -sm .")
        assert shown.output == "73400320\n73400320\nlarge\nnames\ntwo\n3\n71\t.\n"

    async def test_an_upload_to_a_folder_that_goes_is_refused_and_no_more(self, either_box, monkeypatch):
        async def goes(*_):
            return

        monkeypatch.setattr(either_box.container.channel, "make_directory", goes)
        await either_box.exec("echo >file")
        tree = archive({"x": b"1"})
        for path, error in (("gone", FileNotFoundError), ("file", NotADirectoryError)):
            with pytest.raises(error):
                await either_box.upload(tree, path)
        assert (await either_box.exec("echo fine")).output == "fine\n"


@IN_ONE_LOOP
class TestLimits:
    async def test_a_memory_hog_dies_and_the_sandbox_lives(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image, limits=Limits(memory_mb=64))) as box:
            hog = await box.exec(["python3", "-c", "print('begun', flush=True); x = bytearray(200 << 20)"])
            assert (hog.exit_code, hog.output) == (137, "begun\n")
            assert (await box.exec("echo fine")).output == "fine\n"

    async def test_a_sessions_shell_that_the_memory_killer_takes_is_replaced(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image, workdir="/app", limits=Limits(memory_mb=64))) as box:
            shell = await box.session()
            await shell.run(
                "mkdir kept; cd kept; export MARK=here; (while :; do echo tick >>ticks; sleep 0.05; done) &"
            )
            hog = await shell.run(
                "MARK=gone; echo begun; x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo unreached"
            )
            assert (hog.exit_code, hog.output, hog.shell_ended, hog.timed_out) == (137, "begun\n", True, False)
            assert (await shell.run("echo ${PWD##*/} $MARK")).output == "kept here\n"
            before = len(await box.read_file("kept/ticks"))
            await asyncio.sleep(0.3)
            assert len(await box.read_file("kept/ticks")) > before  # a server of the session lives on
            child = await shell.run("python3 -c 'bytearray(200 << 20)'; echo it ended with $?")
            assert child.output.endswith("it ended with 137\n") and not child.shell_ended

    async def test_ten_gigabytes_of_output_cost_the_executor_a_fixed_buffer(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image)) as box:
            flood = await box.exec("cat /dev/zero", timeout=1.5, max_output=1_000_000)
            assert flood.timed_out and flood.truncated
            shown = (await box.exec("grep VmHWM /proc/1/status")).output  # the most that it has ever had
        assert int(shown.split()[1]) < 4_000  # kB; 1 MB is kept, and copied once on its way out

    async def test_a_large_file_costs_the_executor_a_fixed_buffer(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image)) as box:
            await box.exec("head -c 40000000 /dev/zero >large")
            assert len(await box.read_file("large", max_bytes=50_000_000)) == 40_000_000
            shown = (await box.exec("grep VmHWM /proc/1/status")).output
        assert int(shown.split()[1]) < 4_000  # kB

    async def test_a_fork_bomb_is_bounded_and_killed(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image, limits=Limits(pids=64))) as box:
            bomb = await box.exec("bomb() { bomb | bomb & }; bomb; sleep 60", timeout=2)
            assert bomb.exit_code != 0
            await box.exec("true", timeout=1)
            for _ in range(20):
                if (await box.exec("echo fine")).output == "fine\n":
                    break
                await asyncio.sleep(0.5)
            else:
                pytest.fail("the sandbox did not recover")

    async def test_too_many_processes_are_a_result(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image, limits=Limits(pids=8))) as box:
            results = await asyncio.gather(*(box.exec("sleep 1") for _ in range(8)))
            failed = [r for r in results if not r.ok]
            assert failed
            assert all("cannot" in r.output.lower() for r in failed)
            assert (await box.exec("echo fine")).output == "fine\n"

    @pytest.mark.parametrize("left", [0, 1])
    async def test_at_the_limit_of_processes_what_was_left_running_makes_room(self, either_backend, base_image, left):
        """Else no command could be started any more, not even one that kills it. left: places that are free."""
        breeds = "n=0; while [ $n -lt 40 ]; do sleep 600 & n=$((n + 1)); done"
        async with either_backend.open(SandboxSpec(base_image, limits=Limits(pids=32))) as box:
            shell = await box.session()
            assert (await shell.run("true")).ok
            assert "fork" in (await box.exec(breeds)).output
            if not left:
                assert (await shell.run("sleep 600 &")).ok
            refused = await box.exec("true")
            assert refused.exit_code == 126
            assert refused.output.endswith("what earlier commands left running is killed: try again\n")
            for _ in range(100):
                if (await box.exec("true")).ok:
                    break
                await asyncio.sleep(0.05)
            assert (await box.exec("pgrep -c sleep")).output == f"{1 - left}\n", "a living shell keeps its own"
            assert (await shell.run("echo here")).output == "here\n"

    async def test_a_file_cannot_outgrow_the_limit(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image, limits=Limits(disk_mb=1))) as box:
            assert not (await box.exec("head -c 2000000 /dev/zero >big")).ok
            assert len(await box.read_file("big")) == 2**20
            with pytest.raises(OSError, match="big"):
                await box.write_file("big", b"x" * 2_000_000)
            assert await box.read_file("big") == bytes(2**20), "as it was"
            # Where the watch of the disk limit looked meanwhile, that is what it shows.
            shown = (await box.exec("ls -A /")).output
            assert not re.search("^[.][0-9a-f]{16}$", shown, re.MULTILINE), "nothing is left beside it"
            with pytest.raises(OSError, match="standard input"):
                await box.exec("cat", stdin=b"x" * 2_000_000)

    async def test_more_processes_get_no_more_cpu(self, either_backend, base_image):
        async with either_backend.open(SandboxSpec(base_image, limits=Limits(cpus=0.25))) as box:
            began = time.monotonic()
            await box.exec("for i in 1 2 3 4; do (while :; do :; done) & done; sleep 60", timeout=2)
            most = 0.25 * (time.monotonic() - began) + 0.4  # what the start took
            old, new = "/sys/fs/cgroup/cpuacct/cpuacct.usage", "/sys/fs/cgroup/cpu.stat"
            used = await box.exec(f"cat {old} 2>/dev/null || sed -n 's/usage_usec \\(.*\\)/\\1000/p' {new}")
            assert 0 < int(used.output) < most * 1e9  # nanoseconds


class TestOfTheDaemonsOwn:
    async def test_the_daemon_was_told_the_limits(self, docker_backend, base_image, daemon):
        limits = Limits(cpus=0.5, memory_mb=128, pids=100)
        async with docker_backend.open(SandboxSpec(base_image, limits=limits)) as box:
            host = (await daemon.containers.container(box.id).show())["HostConfig"]
            assert host["NanoCpus"] == 500_000_000
            assert host["Memory"] == host["MemorySwap"] == 128 * 2**20
            assert host["PidsLimit"] == 100


class TestNothingIsLeft:
    async def test_after_success(self, docker_backend, base_image, daemon):
        async with docker_backend.open(SandboxSpec(base_image)):
            assert len(await containers(daemon, docker_backend.owner.id)) == 1
        assert await containers(daemon, docker_backend.owner.id) == []

    async def test_after_an_exception(self, docker_backend, base_image, daemon):
        with pytest.raises(ZeroDivisionError):
            async with docker_backend.open(SandboxSpec(base_image)):
                raise ZeroDivisionError
        assert await containers(daemon, docker_backend.owner.id) == []

    @pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.3, 1.0])
    async def test_after_a_cancellation_at_any_moment(self, docker_backend, base_image, daemon, delay):
        async def hold() -> None:
            async with docker_backend.open(SandboxSpec(base_image)) as box:
                await box.exec("sleep 60")

        task = asyncio.create_task(hold())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await containers(daemon, docker_backend.owner.id) == []

    async def test_after_the_backend_is_left_first(self, base_image, daemon):
        async with contextlib.AsyncExitStack() as boxes:
            async with DockerBackend(starter="docker") as backend:
                box = await boxes.enter_async_context(backend.open(SandboxSpec(base_image)))
            assert await containers(daemon, backend.owner.id) == []
            with pytest.raises(SandboxDied):
                await box.exec("true")

    async def test_when_the_backend_is_left_while_a_sandbox_starts(self, base_image, daemon):
        async def start(backend: DockerBackend) -> None:
            async with backend.open(SandboxSpec(base_image)):
                await asyncio.sleep(60)

        async with DockerBackend(max_starts=2, starter="docker") as backend:
            tasks = [asyncio.create_task(start(backend)) for _ in range(6)]
            await asyncio.sleep(0.1)
        assert await containers(daemon, backend.owner.id) == []
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert await containers(daemon, backend.owner.id) == []

    async def test_after_removal_from_outside(self, docker_backend, base_image, daemon):
        async with docker_backend.open(SandboxSpec(base_image)) as box:
            running = asyncio.create_task(box.exec("sleep 60"))
            await asyncio.sleep(0.2)
            await daemon.containers.container(box.id).delete(force=True)
            with pytest.raises(SandboxDied):
                await running
            with pytest.raises(SandboxDied):
                await box.download("/etc")

    async def test_a_killed_owners_containers_stop_at_once_and_are_reaped(self, base_image, daemon):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _OWNER, base_image), stdout=asyncio.subprocess.PIPE
        )
        owner, name = (await process.stdout.readline()).decode().split()
        process.kill()
        await process.wait()
        for _ in range(100):
            if not await runs(daemon, name):
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the container outlived its owner")
        async with DockerBackend(starter="docker"):
            for _ in range(100):  # another process's start may be removing them at this moment
                if not (left := await containers(daemon, owner)):
                    break
                await asyncio.sleep(0.1)
            assert left == []

    async def test_a_living_owners_containers_are_left_alone(self, docker_backend, base_image):
        async with docker_backend.open(SandboxSpec(base_image)) as box:
            async with DockerBackend(starter="docker"):
                pass
            assert (await box.exec("echo fine")).output == "fine\n"


async def runs(daemon, name) -> bool:
    """Return whether a container runs; one that a start elsewhere has removed does not."""
    try:
        return (await daemon.containers.container(name).show())["State"]["Running"]
    except DockerError as error:
        assert error.status == 404, error
        return False


_BECOME = """
import ctypes, os
OWN = 60417
libc = ctypes.CDLL(None, use_errno=True)
tries = [(os.setuid, OWN), (os.setreuid, OWN, -1), (os.setreuid, -1, OWN)]
tries += [(os.setresuid, *(OWN if n == own else -1 for n in range(3))) for own in range(3)]
for become, *ids in tries:
    try:
        become(*ids)
        print(become, ids, os.getresuid())
    except PermissionError:
        pass
libc.setfsuid(OWN)
if libc.setfsuid(-1) == OWN:
    print("setfsuid")
os.setgid(65534)
os.setresuid(65534, 65534, 65534)
print(os.getuid(), os.geteuid())
"""

_OWNER = """
import asyncio, sys
from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend

async def main():
    async with DockerBackend(starter="docker") as backend, backend.open(SandboxSpec(sys.argv[1])) as box:
        print(backend.owner.id, box.id, flush=True)
        await box.exec("sleep 60")

asyncio.run(main())
"""
