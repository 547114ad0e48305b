"""A driver's Lease, and what dead drivers have left."""

import pytest
from waiting import until

from sandboxes.base import (
    SandboxError,
)
from sandboxes.docker.executor.container import Kind
from sandboxes.owner import PREFIX

pytest.importorskip("kubernetes_asyncio")
life = pytest.importorskip("sandboxes.kubernetes.life")

pytestmark = pytest.mark.docker


async def test_a_dead_drivers_pods_are_removed_at_the_next_start(make, server, spec):
    async with make() as alive, alive.open(spec) as kept:
        dead = make()
        await dead.__aenter__()
        left = await dead._acquire(Kind.of(spec), spec)
        for one in server.objects["leases"].values():
            if one["metadata"]["labels"][PREFIX + "owner"] == dead.owner.id:
                one["metadata"]["labels"][PREFIX + "start"] = "1"  # that process has ended
        assert left.name in server.objects["pods"]
        async with make():
            assert list(server.objects["pods"]) == [kept.id]
        await dead.__aexit__()


async def test_a_driver_renews_its_lease_also_after_an_answer_was_lost(make, server, monkeypatch):
    monkeypatch.setattr(life, "_RENEW_S", 0.05)
    async with make():
        [lease] = server.objects["leases"].values()
        server.refusals.append(("PUT", "/leases", -500, "etcdserver: request timed out"))
        await until(lambda: not server.refusals)
        name, version = (
            lease["metadata"]["name"],
            server.objects["leases"][lease["metadata"]["name"]]["spec"]["renewTime"],
        )
        await until(lambda: server.objects["leases"][name]["spec"]["renewTime"] > version)


async def test_without_a_right_the_message_names_it(make, server):
    server.refusals.append(("GET", "/leases", 403, 'leases is forbidden: User "u" cannot list'))
    with pytest.raises(SandboxError, match=r"cannot list.*docs/pods\.md"):
        async with make():
            pass
