"""Sandboxes on the small E2B server of the tests' own."""

import asyncio
from dataclasses import replace

import pytest
from e2b_server import docker
from uses import moves_files
from waiting import until

from sandboxes.base import (
    DaemonRefused,
    ImageMissing,
    ImageUnbuildable,
    Limits,
    SandboxDied,
    SandboxEnded,
    SandboxError,
    SandboxSpec,
)
from sandboxes.e2b.backend import E2BBackend
from sandboxes.owner import PREFIX, Owner

pytestmark = pytest.mark.docker


async def test_a_sandbox_of_the_server_is_one_of_ours_without_network(make, server, spec):
    async with make() as backend:
        async with backend.open(spec) as box:
            await moves_files(box)
            assert (await box.exec("grep -c : /proc/net/dev")).output == "1\n"
            made = server.sandboxes[box.id]
        assert made["internet"] is False
        assert made["metadata"][PREFIX + "owner"] == backend.owner.id
        await until(lambda: not server.sandboxes)


async def test_root_in_a_sandbox_reaches_no_program_that_runs_outside_of_its_container(make, spec):
    """The template's own programs, its services' sockets and devices would do what root asks."""
    async with make() as backend, backend.open(spec) as box:
        assert (await box.exec("cat /proc/[0-9]*/comm")).output.split()[0] == "executor"
        assert "sleep" not in (await box.exec("cat /proc/[0-9]*/comm")).output
        assert (await box.exec("ls -A /opt/.atropos /run")).output == "/opt/.atropos:\n\n/run:\n"
        assert "Read-only" in (await box.exec("echo x >/.atropos/executor")).output
        assert "Read-only" in (await box.exec("true >/proc/sys/kernel/core_pattern")).output
        assert "Read-only" in (await box.exec("echo 1000 >/proc/1/oom_score_adj")).output
        assert (await box.exec("cat /proc/1/comm")).output == "executor\n"
        assert not (await box.exec("umount /opt/.atropos || mount -t tmpfs x /mnt")).ok
        names = (await box.exec("ls /dev")).output.split()
        assert not [name for name in names if name.startswith(("sd", "vd", "nvme", "loop"))]


async def test_a_tasks_limits_hold_where_the_machines_root_can_make_control_groups(make, server, spec):
    limited = replace(spec, limits=Limits(pids=20, memory_mb=100, cpus=0.5))
    breeds = "for one in $(seq 40); do sleep 1 & done; wait"
    async with make() as backend:
        async with backend.open(limited) as box:
            assert "Cannot fork" in (await box.exec(breeds)).output
            for _ in range(100):  # until those have ended
                if (await box.exec("true")).ok:
                    break
                await asyncio.sleep(0.1)
            assert (await box.exec(["python3", "-c", "bytearray(300 << 20)"])).exit_code == 137
            groups = "find /sys/fs/cgroup -path '*atropos/*' -name pids.max"
            assert "Read-only" in (await box.exec(f"for one in $({groups}); do echo max >$one; done")).output
        server.groups = False
        async with backend.open(limited) as box:
            assert (await box.exec(breeds)).ok


async def test_files_outside_of_the_disk_fill_no_memory(make, spec):
    """No killing of processes would free it."""
    async with make() as backend, backend.open(spec) as box:
        for place, most in (("/dev/shm", 64 << 20), ("/run", 16 << 20)):
            await box.exec(f"head -c 100M /dev/zero >{place}/full")
            assert int((await box.exec(f"stat -c %s {place}/full")).output) <= most
        assert "Read-only" in (await box.exec("touch /dev/new")).output


async def test_an_end_for_want_of_memory_is_the_programs_doing_and_another_is_not(make, server, spec):
    server.memory = "200m"
    kill = 'for p in /proc/[0-9]*; do test "$(cat $p/comm)" != executor || kill -9 ${p#/proc/}; done'
    first = 'for p in /proc/[0-9]*; do test "$(cat $p/comm)" != executor || echo 1000 >$p/oom_score_adj; done'
    async with make() as backend:
        async with backend.open(spec) as box:
            await docker("exec", box.id, "sh", "-c", f"{first}; tail /dev/zero & tail /dev/zero & wait")
            with pytest.raises(SandboxEnded) as caught:
                await box.exec("true")
            assert caught.value.limit == "memory"
        async with backend.open(spec) as box:
            await docker("exec", box.id, "sh", "-c", kill)
            with pytest.raises(SandboxDied) as caught:
                await box.exec("true")
            assert not isinstance(caught.value, SandboxEnded)


async def test_a_cut_stream_is_taken_up_again_and_no_command_runs_twice(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        running = asyncio.create_task(box.exec("echo x >>/app/ran; sleep 60"))
        await box.exec("until test -s /app/ran; do sleep 0.05; done")
        server.cut()
        with pytest.raises(SandboxError, match="was away for a moment"):
            await running
        assert (await box.exec("cat /app/ran; pgrep sleep")).output == "x\n"


async def test_a_sandbox_whose_time_is_over_is_no_commands_failure(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        running = asyncio.create_task(box.exec("sleep 60"))
        await box.exec("true")
        await server.remove(box.id)
        with pytest.raises(SandboxDied, match="its time was over") as caught:
            await running
        assert not isinstance(caught.value, SandboxEnded)
        with pytest.raises(SandboxDied, match="its time was over"):
            await box.download("/app")


async def test_busy_servers_and_lost_answers_are_outlasted(make, server, spec):
    server.refusals += [
        ("GET", "/v2/sandboxes", 503, "unavailable"),
        ("POST", "/sandboxes", 429, "too many sandboxes"),
        ("POST", "/sandboxes", -502, "made, and the answer is lost"),
        ("POST", "/Start", 502, "bad gateway"),
    ]
    async with make() as backend:
        with pytest.raises(SandboxError, match="bad gateway"):
            async with backend.open(spec):
                pass
        async with backend.open(spec) as box:
            server.refusals += [("POST", "/Start", 502, "bad gateway")]
            assert await box.download("/app")
        assert not server.refusals
    assert not server.sandboxes


async def test_open_sandboxes_are_prolonged(make, server, spec, monkeypatch):
    monkeypatch.setattr("sandboxes.remote.backend.LEASE_S", 0.5)
    async with make() as backend, backend.open(spec) as box:
        await until(lambda: server.prolonged.count(box.id) > 1)


async def test_sandboxes_of_dead_drivers_are_removed_at_the_next_start(make, server, spec):
    async with make() as backend, backend.open(spec) as kept:
        gone = replace(Owner.of_this_process(), id="gone", pid=2**22 + 1)
        await server.make(gone.labels())
        async with make():
            assert list(server.sandboxes) == [kept.id]


async def test_the_remedy_is_named_for_keys_templates_and_dockerfiles(make, server, spec, tmp_path, monkeypatch):
    (tmp_path / "Dockerfile").write_text("FROM x")
    async with make() as backend:
        with pytest.raises(ImageMissing, match="no template nowhere"):
            async with backend.open(SandboxSpec("nowhere")):
                pass
        with pytest.raises(ImageUnbuildable, match="make a template"):
            await backend.ensure_image(None, tmp_path)
        server.mounts = []
        with pytest.raises(ImageMissing, match="apt-get install bubblewrap"):
            async with backend.open(spec):
                pass
        server.token = False
        with pytest.raises(SandboxError, match="leave the task's network off"):
            async with backend.open(replace(spec, limits=Limits(network=True))):
                pass
    monkeypatch.setenv("E2B_API_KEY", "wrong")
    with pytest.raises(DaemonRefused, match=r"--env\.e2b\.key"):
        async with make():
            pass
    with pytest.raises(DaemonRefused, match="NO_SUCH is not set"):
        async with E2BBackend(e2b={"key": "NO_SUCH"}):
            pass
