"""How networks of pods are closed."""

import pytest

from sandboxes.base import DaemonRefused
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.guard import choose_guard
from sandboxes.kubernetes.options import PodOptions
from sandboxes.owner import Owner

pytestmark = pytest.mark.docker
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "l", "uid": "u"}


async def chosen(server, **options):
    given = PodOptions(kubeconfig=str(server.kubeconfig), **options)
    async with Cluster.connect(given) as cluster:
        return await choose_guard(cluster, given, Owner.of_this_process(), LEASE)


async def test_a_namespace_of_its_own_comes_before_policies(server):
    assert (await chosen(server)).takes_down
    guard = await chosen(server, network_off="policy", network_probe=["10.0.0.1:53"])
    assert not guard.takes_down
    assert "each start tries their node's kubelet, 10.0.0.1:53 (--env.pods.network_off says so)" in guard.text


async def test_without_policies_a_namespace_is_needed(server):
    refusal = ("POST", "/networkpolicies", 403, "networkpolicies is forbidden")
    server.refusals.append(refusal)
    assert (await chosen(server)).takes_down
    server.refusals.append(refusal)
    with pytest.raises(DaemonRefused, match="networkpolicies is forbidden"):
        await chosen(server, network_off="policy")
