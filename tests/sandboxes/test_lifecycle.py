"""Reset, fork, the warm pool and the disk limit."""

import asyncio
import time

import aiodocker
import pytest

from sandboxes.base import ExecResult, Limits, Sandbox, SandboxDied, SandboxSpec
from sandboxes.docker.backend import DockerBackend
from sandboxes.docker.pool import PoolLimits
from sandboxes.owner import PREFIX


class TestReset:
    async def test_files_processes_and_sessions_are_as_at_the_start(self, box):
        await box.write_file("made", b"1")
        await box.exec("echo changed >/app/changed; sleep 76543 >/dev/null 2>&1 &")
        shell = await box.session()
        await shell.run("cd /tmp")
        await box.reset()
        assert (await box.exec("ls -A")).output == ""
        left = "grep -la '^sleep.7654[3]' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
        assert (await box.exec(left)).output == "0\n"
        with pytest.raises(SandboxDied):
            await shell.run("pwd")
        assert (await (await box.session()).run("pwd; echo $COLOUR")).output == f"{box.workdir}\ngreen\n"

    async def test_a_reset_sandbox_can_be_reset_again(self, box):
        for _ in range(3):
            await box.write_file("made", b"1")
            await box.reset()
            with pytest.raises(FileNotFoundError):
                await box.read_file("made")


class TestFork:
    async def test_forks_have_its_files_and_are_apart(self, box):
        await box.exec("mkdir d; echo one >d/file; ln -s file d/link; chmod 750 d/file")
        async with box.fork(3) as forks:
            for number, fork in enumerate(forks):
                assert isinstance(fork, Sandbox)
                assert (await fork.exec("cat d/link; stat -c %a d/file; pwd; echo $COLOUR")).output == (
                    f"one\n750\n{fork.workdir}\ngreen\n"
                )
                await fork.write_file("mine", str(number).encode())
            assert [await fork.read_file("mine") for fork in forks] == [b"0", b"1", b"2"]
            with pytest.raises(FileNotFoundError):
                await box.read_file("mine")

    async def test_the_forked_one_runs_on(self, box):
        shell = await box.session()
        await shell.run("x=5; sleep 65432 & ")
        async with box.fork(1) as (fork,):
            await fork.exec("echo there")
            assert (await shell.run("echo $x; jobs | wc -l")).output == "5\n1\n"

    async def test_a_fork_can_be_forked(self, box):
        await box.write_file("file", b"first")
        async with box.fork(1) as (child,):
            await child.write_file("file", b"second")
            async with child.fork(2) as grandchildren:
                assert [await g.read_file("file") for g in grandchildren] == [b"second"] * 2
            assert await box.read_file("file") == b"first"


@pytest.mark.docker
class TestForksOfContainers:
    async def test_nothing_is_left_of_them(self, docker_backend, docker_box):
        async with docker_box.fork(2):
            pass
        async with aiodocker.Docker() as daemon:
            filters = {"label": [f"{PREFIX}owner={docker_backend.owner.id}"]}
            images = await daemon._query_json("images/json", params={"filters": aiodocker.utils.clean_filters(filters)})
            assert images == []
            assert len(await daemon.containers.list(all=True, filters=filters)) == 1

    async def test_a_fork_of_a_dead_sandbox_raises(self, docker_box):
        async with aiodocker.Docker() as daemon:
            await daemon.containers.container(docker_box.id).delete(force=True)
        with pytest.raises(SandboxDied):
            async with docker_box.fork(1):
                pass


@pytest.fixture
async def pooled(base_image):
    async with DockerBackend(pool=PoolLimits(each=1, total=3, free_disk_mb=100)) as backend:
        yield backend


async def until_ready(backend: DockerBackend, spec: SandboxSpec, count: int) -> None:
    for _ in range(300):
        if backend.ready(spec) >= count:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"the pool did not get {count} sandboxes ready")


@pytest.mark.docker
class TestWarmPool:
    async def test_what_was_prepared_is_had_at_once(self, pooled, base_image):
        spec = SandboxSpec(base_image, workdir="/app", env={"COLOUR": "green"})
        pooled.prepare(spec, 2)
        await until_ready(pooled, spec, 2)
        start = time.monotonic()
        async with pooled.open(spec) as box:
            assert time.monotonic() - start < 0.1  # a new one takes several times as long
            assert (await box.exec("pwd; echo $COLOUR")).output == "/app\ngreen\n"

    async def test_one_kind_serves_every_user_directory_and_environment(self, pooled, base_image):
        spec = SandboxSpec(base_image)
        pooled.prepare(spec, 1)
        await until_ready(pooled, spec, 1)
        other = SandboxSpec(base_image, workdir="/new/place", env={"A": "b"}, user="nobody")
        async with pooled.open(other) as box:
            assert (await box.exec("pwd; echo $A; id -un")).output == "/new/place\nb\nnobody\n"

    async def test_other_limits_are_another_kind(self, pooled, base_image):
        spec = SandboxSpec(base_image)
        pooled.prepare(spec, 1)
        await until_ready(pooled, spec, 1)
        async with pooled.open(SandboxSpec(base_image, limits=Limits(memory_mb=77))) as box:
            limit = (await box.exec("cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max")).output
            assert str(77 * 2**20) in limit

    async def test_its_place_is_filled_again(self, pooled, base_image):
        spec = SandboxSpec(base_image)
        async with pooled.open(spec):
            await until_ready(pooled, spec, 1)
            async with pooled.open(spec):
                await until_ready(pooled, spec, 1)

    async def test_one_that_died_in_the_pool_is_not_handed_out(self, pooled, base_image):
        spec = SandboxSpec(base_image)
        pooled.prepare(spec, 1)
        await until_ready(pooled, spec, 1)
        (machine,) = pooled._entered.pool.machines()
        async with aiodocker.Docker() as daemon:
            await daemon.containers.container(machine.name).kill()
        async with pooled.open(spec) as box:
            assert box.id != machine.name
            assert (await box.exec("echo fine")).output == "fine\n"

    async def test_the_total_is_bounded(self, pooled, base_image):
        one, two = SandboxSpec(base_image), SandboxSpec(base_image, limits=Limits(pids=99))
        pooled.prepare(one, 3)
        await until_ready(pooled, one, 3)
        pooled.prepare(two, 2)
        await until_ready(pooled, two, 2)
        assert len(pooled._entered.pool.machines()) <= 3

    async def test_none_is_left_when_the_backend_is_left(self, base_image):
        async with DockerBackend(pool=PoolLimits(each=2)) as backend:
            backend.prepare(SandboxSpec(base_image), 4)
            await asyncio.sleep(0.5)  # some ready, some starting
        async with aiodocker.Docker() as daemon:
            filters = {"label": [f"{PREFIX}owner={backend.owner.id}"]}
            assert await daemon.containers.list(all=True, filters=filters) == []

    async def test_a_reset_takes_one_from_the_pool(self, pooled, base_image):
        spec = SandboxSpec(base_image, workdir="/app")
        pooled.prepare(spec, 2)
        await until_ready(pooled, spec, 2)
        async with pooled.open(spec) as box:
            await until_ready(pooled, spec, 1)
            await box.write_file("made", b"1")
            start = time.monotonic()
            await box.reset()
            assert time.monotonic() - start < 0.1
            assert (await box.exec("ls -A")).output == ""


@pytest.mark.docker
class TestDiskLimit:
    async def test_many_files_cannot_outgrow_it(self, docker_backend, base_image):
        async with docker_backend.open(SandboxSpec(base_image, limits=Limits(disk_mb=100))) as box:
            fill = "i=0; while head -c 20000000 /dev/zero >/var/f$i; do i=$((i+1)); sleep 0.05; done; echo full"
            result: ExecResult = await box.exec(fill, timeout=120)
            assert not result.timed_out
            assert "disk limit of 100 MB" in result.output or "full" in result.output
            written = int((await box.exec("du -sm /var/f* | awk '{s+=$1} END {print s}'")).output)
            assert written < 300
            assert (await box.exec("rm /var/f*; echo fine")).output == "fine\n"

    async def test_a_daemon_that_fills_the_disk_is_killed(self, docker_backend, base_image):
        async with docker_backend.open(SandboxSpec(base_image, limits=Limits(disk_mb=60))) as box:
            daemon = "(setsid sh -c 'for i in $(seq 1000); do head -c 10000000 /dev/zero >/f$i; sleep 0.05; done' &)"
            await box.exec(daemon)
            for _ in range(200):
                if (await box.exec("ps ax | grep -c '[s]eq 1000'")).output == "0\n":
                    break
                await asyncio.sleep(0.1)
            else:
                pytest.fail("it still writes")

    async def test_what_was_freed_can_be_used_again(self, docker_backend, base_image):
        async with docker_backend.open(SandboxSpec(base_image, limits=Limits(disk_mb=100))) as box:
            again = "for i in $(seq 10); do head -c 40000000 /dev/zero >f; rm f; sleep 0.03; done; echo fine"
            assert (await box.exec(again, timeout=120)).output == "fine\n"
