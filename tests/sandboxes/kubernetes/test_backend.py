"""Pods on the small API server of the tests' own."""

import pytest
from uses import moves_files
from waiting import until

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
