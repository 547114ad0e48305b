"""Where a fleet opens sandboxes, and what becomes of hosts that fail."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from fake_hosts import FakeBackend, FakeHost, remove_owned
from waiting import until

from sandboxes.base import DaemonError, DaemonUnavailable, ImageMissing, Limits, SandboxDied, SandboxSpec, StorageFull
from sandboxes.fleet import FleetBackend, Host, backend, member

SPEC = SandboxSpec("image")


@pytest.fixture
def fleet(monkeypatch):
    """Makes a fleet of fake hosts."""

    def make(*hosts, capacity=None):
        machines = {f"ssh://{number}": host for number, host in enumerate(hosts)}
        monkeypatch.setattr(backend, "DockerBackend", lambda url, **options: FakeBackend(machines[url]))
        monkeypatch.setattr(member, "remove_owned", remove_owned)
        monkeypatch.setattr(member, "PROBE_S", 0.01)
        monkeypatch.setattr(member, "FIRST_REST_S", 0.1)
        return FleetBackend([Host(url, capacity) for url in machines])

    return make


async def opened(stack, fleet, spec=SPEC):
    box = await stack.enter_async_context(fleet.open(spec))
    return box.host


async def test_the_host_that_is_least_spoken_for_gets_the_next_sandbox(fleet):
    small, large = FakeHost(processors=2), FakeHost(processors=6)
    async with fleet(small, large) as hosts, AsyncExitStack() as stack:
        found = [await opened(stack, hosts) for _ in range(8)]
    assert (found.count(small), found.count(large)) == (2, 6)


async def test_memory_counts_where_it_is_what_is_short(fleet):
    one, other = FakeHost(), FakeHost()
    async with fleet(one, other) as hosts, AsyncExitStack() as stack:
        first = await opened(stack, hosts, SandboxSpec("image", limits=Limits(cpus=0.1, memory_mb=40_000)))
        found = [await opened(stack, hosts, SandboxSpec("image", limits=Limits(memory_mb=100))) for _ in range(3)]
    assert first not in found


async def test_a_host_that_has_the_image_is_taken_until_it_is_much_busier(fleet):
    with_it, without = FakeHost(), FakeHost(images=set())
    async with fleet(with_it, without) as hosts, AsyncExitStack() as stack:
        await hosts.ensure_image("image")
        without.images.add("image")  # it can be had there, too
        found = [await opened(stack, hosts) for _ in range(8)]
    assert set(found[:4]) == {with_it} and without in found[4:]


async def test_a_full_host_gets_no_more_and_openings_wait_for_room(fleet):
    only = FakeHost()
    async with fleet(only, capacity=2) as hosts, AsyncExitStack() as stack:
        await opened(stack, hosts)
        async with hosts.open(SPEC):
            third = asyncio.create_task(opened(stack, hosts))
            await asyncio.sleep(0.05)
            assert only.opened == 2 and not third.done()
        await third
        assert only.opened == 3


async def test_what_one_host_fails_to_open_another_opens_and_the_first_rests(fleet):
    sick, well = FakeHost(processors=64), FakeHost()
    async with fleet(sick, well) as hosts:
        sick.problem = DaemonError("500")
        for _ in range(3):
            hosts.members[0].images.add("image")
            async with hosts.open(SPEC) as box:
                assert box.host is well
        assert not hosts.members[0].is_usable
        sick.problem = None
        await until(lambda: hosts.members[0].is_usable)
        hosts.members[0].images.add("image")
        async with hosts.open(SPEC) as box:
            assert box.host is sick


async def test_a_host_whose_sandboxes_die_rests_too(fleet):
    async with fleet(FakeHost(processors=64), FakeHost()) as hosts:
        for _ in range(3):
            hosts.members[0].images.add("image")
            with pytest.raises(RuntimeError):
                async with hosts.open(SPEC):
                    raise RuntimeError("the rollout failed") from SandboxDied("it is gone")
        assert [one.is_usable for one in hosts.members] == [False, True]


async def test_a_lost_host_gets_nothing_and_comes_back_without_what_it_had(fleet):
    one, other = FakeHost(processors=64), FakeHost()
    async with fleet(one, other) as hosts:
        async with AsyncExitStack() as stack:
            assert await opened(stack, hosts) is one
            one.down = True
            await until(lambda: hosts.members[0]._backend is None)
            assert await opened(stack, hosts) is other
            assert one.sandboxes, "it can't be reached"
        one.down = False
        await until(lambda: hosts.members[0].is_usable)
        assert not one.sandboxes
        async with AsyncExitStack() as stack:
            assert one in [await opened(stack, hosts) for _ in range(8)]


async def test_it_is_said_once_why_a_lost_host_is_not_back(fleet, caplog):
    one, other = FakeHost(), FakeHost()
    async with fleet(one, other) as hosts:
        one.down = True
        await until(lambda: "is not back: it is down" in caplog.text)
        await asyncio.sleep(0.1)
        one.down = False
        await until(lambda: hosts.members[0].is_usable)
    assert caplog.text.count("is not back") == 1


async def test_hosts_that_do_not_answer_at_the_start_are_used_when_they_do(fleet):
    late, there = FakeHost(processors=64), FakeHost()
    late.down = True
    async with fleet(late, there) as hosts:
        async with hosts.open(SPEC) as box:
            assert box.host is there
        late.down = False
        await until(lambda: hosts.members[0].is_usable)


async def test_without_any_host_it_says_so(fleet):
    host = FakeHost()
    host.down = True
    with pytest.raises(DaemonUnavailable, match=r"none of the Docker hosts can be used: it is down"):
        async with fleet(host):
            pass
    with pytest.raises(ValueError, match="at least one host"):
        FleetBackend([])


async def test_an_image_that_no_host_can_get_is_missing(fleet):
    async with fleet(FakeHost(images=set()), FakeHost(images=set())) as hosts:
        with pytest.raises(ImageMissing):
            await hosts.ensure_image("image")
        with pytest.raises(ImageMissing, match="no other host has it"):
            async with hosts.open(SPEC):
                pass


async def test_room_is_given_back_however_an_opening_ends(fleet):
    sick = FakeHost()
    async with fleet(sick, capacity=1) as hosts:
        sick.problem = DaemonError("500")
        for _ in range(2):
            with pytest.raises(DaemonError):
                async with hosts.open(SPEC):
                    pass
        (one,) = hosts.members
        assert (one.sandboxes, one.cpus, one.memory_mb) == (0, 0, 0)


async def test_a_host_whose_storage_is_full_rests_at_once(fleet):
    full, other = FakeHost(processors=64), FakeHost()
    async with fleet(full, other) as hosts:
        full.problem = StorageFull("no room")
        async with hosts.open(SPEC) as box:
            assert box.host is other
        assert [one.is_usable for one in hosts.members] == [False, True]


async def test_a_host_gets_nothing_from_its_first_unanswered_look_on(fleet, monkeypatch):
    monkeypatch.setattr(member, "SLOW_S", 0.05)
    monkeypatch.setattr(member, "ANSWER_S", 60.0)
    hanging, other = FakeHost(processors=64), FakeHost()
    async with fleet(hanging, other) as hosts:
        hanging.hangs = asyncio.Event()
        await until(lambda: hosts.members[0].is_silent)
        async with AsyncExitStack() as stack:
            assert {await opened(stack, hosts) for _ in range(20)} == {other}
        hanging.hangs.set()
        await until(lambda: hosts.members[0].is_usable)
        hosts.members[0].images.add("image")
        async with hosts.open(SPEC) as box:
            assert box.host is hanging


@pytest.mark.parametrize("again_after", [0.05, 0.5])
async def test_a_lone_host_that_is_away_is_waited_for(fleet, again_after):
    only = FakeHost()
    async with fleet(only) as hosts, AsyncExitStack() as stack:
        only.down = True
        await until(lambda: hosts.members[0].is_silent)
        waiting = [asyncio.create_task(opened(stack, hosts)) for _ in range(3)]
        image = asyncio.create_task(hosts.ensure_image("image"))
        await asyncio.sleep(again_after)
        assert not any(one.done() for one in (*waiting, image))
        only.down = False
        assert await asyncio.gather(*waiting, image) == [only, only, only, "image"]


async def test_an_opening_in_whose_midst_the_lone_host_goes_away_is_made_again(fleet):
    only = FakeHost()
    async with fleet(only) as hosts, AsyncExitStack() as stack:
        hosts.members[0]._missed, only.problem = 1, DaemonUnavailable("gone")
        opening = asyncio.create_task(opened(stack, hosts))
        await asyncio.sleep(0.05)
        only.problem = None
        assert await opening is only


async def test_hosts_that_stay_away_are_given_up(fleet, monkeypatch):
    monkeypatch.setattr(backend, "ROOM_S", 0.3)
    only = FakeHost()
    async with fleet(only) as hosts:
        only.down = True
        await until(lambda: hosts.members[0].is_silent)
        with pytest.raises(DaemonUnavailable, match="no Docker host can be used at present"):
            async with hosts.open(SPEC):
                pass
