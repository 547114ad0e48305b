"""Pods on the small API server of the tests' own."""

import asyncio

import pytest
from uses import moves_files
from waiting import until

from sandboxes.kubernetes.faults import NodeLost, PodDeleted, PodEvicted
from sandboxes.owner import PREFIX

pytestmark = pytest.mark.docker


async def test_a_pod_is_a_sandbox_without_token_privileges_or_network(make, server, spec):
    async with make() as backend:
        async with backend.open(spec) as box:
            await moves_files(box)
            assert "eth0" not in (await box.exec("cat /proc/net/dev")).output
            pod = server.objects["pods"][box.id]
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert all(one["securityContext"]["capabilities"]["drop"] == ["ALL"] for one in pod["spec"]["containers"])
        assert pod["metadata"]["labels"][PREFIX + "owner"] == backend.owner.id
        await until(lambda: not server.objects["pods"])
    assert not server.objects["leases"]


async def test_a_command_reaches_nobody_who_watches_from_inside(make, server, spec):
    """The relay is in another container: a command can neither see nor end it."""
    async with make() as backend, backend.open(spec) as box:
        result = await box.exec("kill -9 -1; echo alive")
        assert result.exit_code in (0, 137)
        assert (await box.exec("echo alive")).output == "alive\n"
        assert "relay" not in (await box.exec("cat /proc/[0-9]*/cmdline")).output


@pytest.mark.parametrize(
    ("reason", "end"), [("EvictionByEvictionAPI", PodEvicted), ("DeletionByTaintManager", NodeLost), ("", PodDeleted)]
)
async def test_a_running_command_names_why_the_cluster_took_its_pod(make, server, spec, reason, end):
    async with make() as backend, backend.open(spec) as box:
        running = asyncio.create_task(box.exec("sleep 60"))
        assert (await box.exec("true")).ok
        if reason:
            told = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "for a test"}
            server.change(box.id, conditions=[told])
            await server.cut(box.id)
        else:
            await server.remove(box.id)
        with pytest.raises(end, match=f"is gone: .*{reason}"):
            await asyncio.wait_for(running, 30)
        with pytest.raises(end):
            await box.exec("true")
