"""What sandboxes may write, where the storage has no quotas."""

import asyncio
import os
import re
import sys
import time
from types import SimpleNamespace

import pytest

from sandboxes.base import ExecResult, Limits, SandboxSpec, StorageFull
from sandboxes.docker import disk
from sandboxes.docker.disk import DiskWatch, _Measurement
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.disk_usage import DiskUsage

MB = 2**20


_NAMELESS = """python3 -c "
import mmap, os, time
kept = []
for _ in range(12):
    file = os.open('/var/x', os.O_RDWR | os.O_CREAT)
    os.unlink('/var/x')
    os.write(file, bytes(10_000_000))
    kept.append({})
    time.sleep(0.02)
time.sleep(20)
" """
_HIDDEN = {
    "preallocated": "for i in $(seq 12); do fallocate -l 10M x$i; sleep 0.02; done",
    "deleted and open": _NAMELESS.format("file"),
    "deleted and mapped": _NAMELESS.format("(mmap.mmap(file, 10_000_000), os.close(file))"),
    "a volume": "for i in $(seq 12); do head -c 10M /dev/zero >/data/x$i; sleep 0.02; done",
}


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

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can look into a container's files")
    async def test_what_no_files_size_tells_of_is_counted(self, docker_backend, base_image, tmp_path):
        (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\nVOLUME /data\n")
        image = await docker_backend.ensure_image(None, tmp_path)
        async with docker_backend.open(SandboxSpec(image, workdir="/var", limits=Limits(disk_mb=60))) as box:
            for name, attack in _HIDDEN.items():
                result = await box.exec(f"{attack}; sleep 20", timeout=30)
                assert (result.exit_code, "limit of 60 MB" in result.output) == (137, True), (name, result.output)
                assert (await box.exec("rm -rf /var/x* /data/x* 2>/dev/null; echo fine")).output == "fine\n"
                await asyncio.sleep(0.3)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can look into the Docker daemon's folder")
    async def test_names_of_hosts_that_come_with_a_network_count(self, docker_backend, base_image):
        fill = "for file in hosts hostname resolv.conf; do head -c 50M /dev/zero >/etc/$file; done; sleep 20"
        limits = Limits(disk_mb=60, network=True)
        async with docker_backend.open(SandboxSpec(base_image, limits=limits)) as box:
            result = await box.exec(fill, timeout=30)
            assert (result.exit_code, "limit of 60 MB" in result.output) == (137, True), result.output

    async def test_room_that_no_files_size_tells_of_is_not_given(self, docker_box):
        assert "unsupported" in (await docker_box.exec("echo >f; fallocate -n -l 1M f")).output
        assert (await docker_box.exec("fallocate -l 1M f; fallocate -p -l 4096 f; stat -c %s f")).output == "1048576\n"

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


def test_a_sandbox_is_asked_when_the_storage_has_filled_up_by_what_it_has_left():
    seen = _Measurement(written=60 * MB, lowest_fill=1000 * MB, at=0.0)
    assert not seen.may_have_reached(100 * MB, 1039 * MB, now=1.0)
    assert seen.may_have_reached(100 * MB, 1040 * MB, now=1.0)
    assert not seen.may_have_reached(100 * MB, 900 * MB, now=1.0), "others have made room, which it may fill"
    assert seen.may_have_reached(100 * MB, 940 * MB, now=1.0)
    assert seen.may_have_reached(100 * MB, 900 * MB, now=16.0), "now and then all the same"


async def test_files_count_for_what_an_inode_is_of_the_storage(tmp_path):
    reasons = []

    class Full(Container):
        def __init__(self, found):
            super().__init__(disk_mb=40)
            self.found, self.name, self.channel = found, "box", self

        async def disk_usage(self):
            return self.found

        async def kill_everything(self, why):
            reasons.append(why)

    watch = DiskWatch(tmp_path)
    watch._per_file = 16_384
    for found in (DiskUsage(1, 65_536), DiskUsage(1, 65_537), DiskUsage(41 * MB, 1), DiskUsage(1, 1, whole=False)):
        await watch._measure(Full(found), _Measurement(0, sys.maxsize, 0.0), 40 * MB)
    assert [re.search("limit of (.*) is", why).group(1) for why in reasons] == ["65536 files", "40 MB", "40 MB"]


async def test_what_a_look_finds_of_before_a_reset_is_nothing_to_what_runs_now(tmp_path):
    reasons = []
    watch = DiskWatch(tmp_path)

    class Reset(Container):
        def __init__(self):
            super().__init__(disk_mb=40)
            self.name, self.channel = "box", self

        async def disk_usage(self):
            watch.drop(self)
            watch.add(self)
            return DiskUsage(41 * MB, 1)

        async def kill_everything(self, why):
            reasons.append(why)

    container = Reset()
    watch.add(container)
    await watch._measure(container, watch._containers[container], 40 * MB)
    assert reasons == []


class Container:
    """What the watch knows of a machine."""

    def __init__(self, disk_mb):
        self.kind = Kind("image", Limits(disk_mb=disk_mb), switch_users=False)


class Watch(DiskWatch):
    """Watches a storage that fills as it is told, and counts."""

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        self.mb, self.passes, self.looked = 1000, 0, []

    def _fill(self):
        return self.mb * MB

    async def _check_all(self, fill, now):
        self.passes += 1
        await super()._check_all(fill, now)

    async def _measure(self, container, seen, limit):
        self.looked.append(container)
        seen.at, seen.lowest_fill = time.monotonic(), self._fill()


async def test_machines_are_gone_through_only_when_one_may_have_reached_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_TICK_S", 0.001)
    async with Watch(tmp_path) as watch:
        small, large = Container(40), Container(4000)
        watch.add(large)
        await asyncio.sleep(0.05)
        watch.add(small)
        passes = watch.passes
        for mb in (1030, 900, 930):  # the last is less than 40 above the lowest
            watch.mb = mb
            await asyncio.sleep(0.05)
        assert (watch.passes - passes, watch.looked) == (0, [])
        watch.mb = 940
        await asyncio.sleep(0.05)
        assert watch.looked == [small]


async def test_looks_without_a_reason_are_as_many_for_any_number_of_machines(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_TICK_S", 0.001)
    monkeypatch.setattr(disk, "_ALL_EVERY_S", 0.01)
    monkeypatch.setattr(disk, "_AT_LEAST_EVERY_S", 0.02)
    monkeypatch.setattr(disk, "_APART_S", 0.01)
    async with Watch(tmp_path) as watch:
        for _ in range(100):
            watch.add(Container(4000))
        await asyncio.sleep(0.5)
        assert not watch.looked, "each has its turn after a second"
        await asyncio.sleep(1.0)
        assert len(watch.looked) >= 100


class Unread:
    """A machine that nobody looks at."""

    name = "one"
    kind = Kind.of(SandboxSpec("image", limits=Limits(disk_mb=1000)))

    async def disk_usage(self):
        return DiskUsage(0, 0)


async def test_where_the_storage_was_full_meanwhile_what_failed_is_no_ones_doing(monkeypatch, tmp_path):
    space = SimpleNamespace(f_bavail=2**20, f_bfree=2**20, f_blocks=2**21, f_files=0, f_ffree=0, f_frsize=4096)
    monkeypatch.setattr(disk.os, "statvfs", lambda _: space)
    watch, before, own = DiskWatch(tmp_path), Unread(), Unread()
    watch.add(before)
    watch.check(before)
    watch.check_room()
    space.f_bavail = 0
    with pytest.raises(StorageFull, match="make room there"):
        watch.check_room()
    with pytest.raises(StorageFull, match="was full while one was used"):
        watch.check(before)
    space.f_bavail = 2**20
    monkeypatch.setattr(disk, "_TICK_S", 0.0)
    watch.check_room()
    with pytest.raises(StorageFull):
        watch.check(before)
    watch.add(own)
    watch.check(own)
    space.f_bavail = 0
    watch._containers[own].written = 500 * MB
    watch.check(own)


async def test_a_storage_that_cannot_be_seen_for_a_while_does_not_end_the_watch(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_TICK_S", 0.001)
    monkeypatch.setattr(disk, "_ALL_EVERY_S", 0.01)
    monkeypatch.setattr(disk, "_AT_LEAST_EVERY_S", 0.02)
    monkeypatch.setattr(disk, "_APART_S", 0.01)
    looked = []

    class Looked(Container):
        async def disk_usage(self):
            looked.append(self)
            return DiskUsage(0, 0)

    storage = tmp_path / "storage"
    storage.mkdir()
    async with DiskWatch(storage) as watch:
        watch.add(Looked(4000))
        storage.rmdir()
        await asyncio.sleep(0.05)
        watch.check_room()
        storage.mkdir()
        looked.clear()
        await asyncio.sleep(0.2)
        assert looked
