"""What sandboxes may write, where the storage has no quotas."""

import asyncio

import pytest

from sandboxes.base import ExecResult, Limits, SandboxSpec
from sandboxes.docker.disk import _Seen

MB = 2**20


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


def test_a_sandbox_is_asked_when_the_storage_has_filled_up_by_what_it_has_left():
    seen = _Seen(written=60 * MB, lowest_fill=1000 * MB, at=0.0)
    assert not seen.may_have_reached(100 * MB, 1039 * MB, now=1.0)
    assert seen.may_have_reached(100 * MB, 1040 * MB, now=1.0)
    assert not seen.may_have_reached(100 * MB, 900 * MB, now=1.0), "others have made room, which it may fill"
    assert seen.may_have_reached(100 * MB, 940 * MB, now=1.0)
    assert seen.may_have_reached(100 * MB, 900 * MB, now=16.0), "now and then all the same"
