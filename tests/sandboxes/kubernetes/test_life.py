"""A driver's Lease, and what dead drivers have left."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from waiting import until

from sandboxes.base import (
    SandboxError,
)
from sandboxes.docker.executor.container import Kind
from sandboxes.kubernetes import life
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.options import PodOptions
from sandboxes.owner import PREFIX, Owner

pytestmark = pytest.mark.docker


async def test_a_dead_drivers_pods_are_removed_at_the_next_start(make, server, spec, monkeypatch):
    monkeypatch.setattr(life, "_RENEW_S", 1e6)  # the dead renew nothing
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


async def test_a_driver_removes_the_pods_of_one_that_dies_beside_it(make, server, spec, monkeypatch):
    for name, seconds in {"_RENEW_S": 0.1, "LEASE_S": 1, "_LOOK_S": 0.1}.items():
        monkeypatch.setattr(life, name, seconds)
    async with make() as alive, alive.open(spec) as kept:
        monkeypatch.setattr(life, "_RENEW_S", 1e6)  # the dead renew nothing
        dead = make()
        await dead.__aenter__()
        left = await dead._acquire(Kind.of(spec), spec)
        [lease] = (one for one in server.objects["leases"].values() if dead.owner.id in one["metadata"]["name"])
        lease["metadata"]["labels"][PREFIX + "start"] = "1"  # that process has ended
        assert left.name in server.objects["pods"]
        await until(lambda: list(server.objects["pods"]) == [kept.id])
        assert (await kept.exec("echo here")).output == "here\n"
        await dead.__aexit__()


async def test_a_silence_during_an_outage_kills_no_driver(monkeypatch):
    monkeypatch.setattr(life, "LEASE_S", 1.0)
    monkeypatch.setattr(life, "_LOOK_S", 0.1)
    reaped, looks = [], []
    monkeypatch.setattr(life, "reap", lambda _: asyncio.sleep(0, reaped.append(len(looks))))

    class Away:
        def path(self, *_, **__):
            return "leases"

        async def request(self, *_, **__):
            looks.append(1)
            if 5 < len(looks) < 9:
                raise SandboxError("etcdserver: no leader")
            return {"items": [{"metadata": {"name": "a"}, "spec": {"renewTime": "once"}}]}

    looking = asyncio.create_task(life.reap_continuously(Away()))
    await until(lambda: reaped)
    looking.cancel()
    assert reaped[0] >= 9 + 10 - 3, "it is silent from the first look after the outage"


@pytest.mark.parametrize("strange", [{}, {"items": [{}]}, {"spec": None}, {"items": ["text"]}])
@pytest.mark.parametrize("work", [life.reap_continuously, lambda cluster: life._renew(cluster, "ours")])
async def test_an_answer_in_the_servers_place_ends_neither_renewals_nor_looks(monkeypatch, work, strange):
    for name in ("_RENEW_S", "_LOOK_S"):
        monkeypatch.setattr(life, name, 0.01)
    asked = []

    class Proxied:
        def path(self, *_, **__):
            return "leases"

        async def request(self, *_, **__):
            asked.append(1)
            return strange

    going = asyncio.create_task(work(Proxied()))
    await until(lambda: len(asked) > 2 or going.done())
    assert not going.done()
    going.cancel()


async def test_a_driver_that_starts_while_the_dead_are_looked_for_keeps_its_pods(make, server, spec):
    options = PodOptions(kubeconfig=str(server.kubeconfig))
    async with Cluster.connect(options) as cluster, AsyncExitStack() as stack:
        request, meanwhile = cluster.request, []

        async def listing(method, path, *arguments, **query):
            said = await request(method, path, *arguments, **query)
            if not meanwhile:
                meanwhile.append(await stack.enter_async_context(make()))
                await stack.enter_async_context(meanwhile[0].open(spec))
            return said

        cluster.request = listing
        assert await life.reap(cluster) == 0
        assert len(server.objects["pods"]) == 1


DRIVER = """
import asyncio, sys
from sandboxes.base import SandboxSpec
from sandboxes.kubernetes.backend import KubernetesBackend

async def main():
    async with KubernetesBackend() as backend, backend.open(SandboxSpec(sys.argv[1])):
        print("open", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_killed_drivers_pods_are_removed_by_the_command(server, base_image):
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}

    async def python(*arguments):
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=pipe, env=environment)

    driver = await python("-c", DRIVER, base_image)
    assert await driver.stdout.readline() == b"open\n"
    driver.kill()
    await driver.wait()
    assert len(server.objects["pods"]) == len(server.objects["leases"]) == 1
    said, _ = await (await python("-m", "sandboxes", "reap", "--pods", "boxes")).communicate()
    assert said == b"removed 1 pod of dead drivers\n"
    assert not server.objects["pods"] and not server.objects["leases"]


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


@pytest.mark.parametrize("lives", [True, False])
async def test_a_driver_whose_clock_is_wrong_is_no_dead_one(monkeypatch, lives):
    monkeypatch.setattr(life, "_WATCH_S", 0.01)
    owner = replace(Owner.of_this_process(), id="other", space="another-boot.1")
    looks, deleted = [], []

    class Seen:
        """A cluster with one driver on another machine, whose clock is an hour behind, and its pod."""

        def path(self, kind, name="", group=""):
            return f"{kind}/{name}"

        async def retry(self, work, _):
            return await work()

        async def request(self, method, path, *_, **__):
            if method == "DELETE":
                deleted.append(path)
                return {"items": []}
            labelled = {"metadata": {"name": "one", "labels": owner.labels()}}
            if path.startswith("pods"):
                return {"items": [] if deleted else [labelled]}
            looks.append(1)
            renewed = (datetime.now(UTC) - timedelta(hours=1)).isoformat() if lives else "2026-01-01T00:00:00Z"
            return {"items": [labelled | {"spec": {"renewTime": renewed, "leaseDurationSeconds": 180}}]}

    assert await life.reap(Seen()) == (0 if lives else 1)
    assert len(looks) == 2
    assert ("leases/one" in deleted) == (not lives)
