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
