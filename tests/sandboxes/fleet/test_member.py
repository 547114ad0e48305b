"""One host of a fleet: what counts against it, and what is spoken for there."""

import asyncio
import errno

import pytest
from fake_hosts import FakeBackend, FakeHost

from sandboxes.base import DaemonUnavailable, Limits, SandboxEnded, SandboxSpec, SandboxTimeout
from sandboxes.fleet import Host
from sandboxes.fleet import member as members
from sandboxes.fleet.member import MAX_FAILURES, Member


@pytest.fixture
async def member():
    one = Member(Host("ssh://a"), lambda _: FakeBackend(FakeHost(processors=4)))
    await one.open()
    yield one
    await one.close()


async def test_what_is_more_of_processors_and_memory_is_its_load(member):
    spec = SandboxSpec("image", limits=Limits(cpus=2, memory_mb=1024))
    member.note_open(spec)
    assert member.load == 0.5
    heavy = SandboxSpec("image", limits=Limits(cpus=0.1, memory_mb=64 * 1024))
    member.note_open(heavy)
    assert member.load > 1
    member.note_close(heavy)
    member.note_close(spec)
    assert (member.load, member.sandboxes) == (0, 0)


async def test_what_ran_in_a_sandbox_is_not_the_hosts_fault(member):
    for _ in range(MAX_FAILURES):
        member.note_failure(SandboxEnded("it killed itself", "processes"))
        member.note_failure(ValueError("a mistake of the caller's"))
    assert member.is_usable


async def test_a_success_between_failures_clears_it(member):
    for _ in range(MAX_FAILURES - 1):
        member.note_failure(SandboxTimeout("no answer"))
    member.note_success()
    member.note_failure(SandboxTimeout("no answer"))
    assert member.is_usable
    for _ in range(MAX_FAILURES - 1):
        member.note_failure(SandboxTimeout("no answer"))
    assert not member.is_usable


async def test_one_that_is_not_open_has_no_backend():
    with pytest.raises(DaemonUnavailable, match="ssh://a is lost"):
        _ = Member(Host("ssh://a"), lambda _: FakeBackend(FakeHost())).backend


async def test_a_process_without_descriptors_goes_on_looking_for_a_lost_host(monkeypatch):
    failures = [OSError(errno.EMFILE, "Too many open files")]

    def make(_):
        if failures:
            raise failures.pop()
        return FakeBackend(FakeHost())

    monkeypatch.setattr(members, "PROBE_S", 0.01)
    one = Member(Host("ssh://a"), make)
    watch = asyncio.create_task(one.watch())
    async with asyncio.timeout(5):
        while one.is_silent:
            assert not watch.done()
            await asyncio.sleep(0.01)
    watch.cancel()
    await one.close()
