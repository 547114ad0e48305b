"""Pods that go, and their trees."""

import asyncio

import pytest

from sandboxes.base import (
    SandboxDied,
    SandboxEnded,
)

pytestmark = pytest.mark.docker


async def test_a_pod_that_is_deleted_or_evicted_is_no_commands_failure(make, server, spec):
    async with make() as backend:
        for how, words in (("deleted", "deleted from outside"), ("evicted", "was taken away")):
            async with backend.open(spec) as box:
                running = asyncio.create_task(box.exec("touch /app/began; sleep 60"))
                await box.exec("until test -e /app/began; do sleep 0.05; done")
                if how == "deleted":
                    await server.remove(box.id)
                else:
                    server.change(
                        box.id, phase="Failed", reason="Evicted", message="The node was low on resource: memory"
                    )
                    await server.cut()
                with pytest.raises(SandboxDied, match=words) as caught:
                    await running
                assert not isinstance(caught.value, SandboxEnded)


async def test_a_full_disk_is_the_sandboxes_own_end(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        message = "Pod ephemeral local storage usage exceeds the total limit of containers 2112Mi."
        server.change(box.id, phase="Failed", reason="Evicted", message=message)
        await server.cut()
        with pytest.raises(SandboxEnded) as caught:
            await box.exec("true")
        assert caught.value.limit == "disk"


@pytest.mark.parametrize(
    ("event", "limit"),
    [
        ({"lastTimestamp": "2026-11-29T10:00:02Z"}, None),
        ({"lastTimestamp": None, "series": {"count": 3, "lastObservedTime": "2026-11-29T10:00:01.250000Z"}}, None),
        ({"lastTimestamp": "2026-11-29T09:57:00Z"}, "memory"),
        ({"lastTimestamp": "2026-11-29T10:00:02Z", "involvedObject": {"kind": "Node", "name": "b"}}, "memory"),
        ({"lastTimestamp": "2026-11-29T10:00:02Z", "reason": "Rebooted"}, "memory"),
        (None, "memory"),
    ],
)
async def test_a_pod_that_dies_with_its_node_out_of_memory_is_not_at_its_own_limit(
    make, server, spec, monkeypatch, event, limit
):
    monkeypatch.setattr("sandboxes.kubernetes.pod._EVENT_S", 0.1)
    of_node = {"involvedObject": {"kind": "Node", "name": "a"}, "reason": "SystemOOM", "metadata": {}}
    if event is None:
        server.refusals += [("GET", "/events", 403, "events is forbidden")]
    server.objects["events"]["one"] = of_node | (event or {"lastTimestamp": "2026-11-29T10:00:02Z"})
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-29T10:00:00Z"}}
    async with make() as backend, backend.open(spec) as box:
        server.objects["pods"][box.id]["spec"]["nodeName"] = "a"
        server.change(box.id, phase="Failed", containerStatuses=[{"name": "box", "state": killed}])
        await server.cut()
        with pytest.raises(SandboxDied) as caught:
            await box.exec("true")
    assert getattr(caught.value, "limit", None) == limit
    assert not server.refusals


async def test_an_outage_of_the_api_server_while_a_tree_is_read_is_outlasted(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        await box.write_file("a", b"1")
        server.refusals += [
            ("GET", "/exec", 503, "unavailable"),
            ("GET", "/exec", 403, "forbidden: its API server knows no rights yet"),
            ("GET", "/exec", 404, "its kubelet knows no pods yet"),
        ]
        assert await box.download("/app")
        assert not server.refusals
