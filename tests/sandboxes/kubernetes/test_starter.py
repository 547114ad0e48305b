"""Starts of pods."""

import asyncio
from ipaddress import ip_network

import pytest
from api_server import docker

from sandboxes.base import (
    ImageMissing,
    SandboxDied,
    SandboxSpec,
    SandboxTimeout,
)

pytestmark = pytest.mark.docker


async def test_a_creation_is_repeated_after_refusals_that_pass_and_makes_one_pod(make, server, spec):
    async with make() as backend:
        server.refusals += [
            ("POST", "/pods", 429, "too many requests"),
            ("POST", "/pods", -500, "etcdserver: request timed out"),
        ]
        async with backend.open(spec) as box:
            assert (await box.exec("true")).ok
        assert len(server.created) == 1


async def test_room_in_the_quota_and_on_a_node_is_waited_for(make, server, spec):
    server.quota = 2
    server.room = 1
    async with make() as backend, asyncio.TaskGroup() as group:

        async def used():
            async with backend.open(spec) as box:
                assert (await box.exec("true")).ok

        for _ in range(4):
            group.create_task(used())


async def test_a_driver_may_start_while_the_quota_is_full(make, server, spec):
    server.quota = 0
    async with make() as backend, asyncio.TaskGroup() as group:

        async def used():
            async with backend.open(spec) as box:
                assert (await box.exec("true")).ok

        group.create_task(used())
        await asyncio.sleep(0.2)
        server.quota = 1


async def test_a_wait_for_room_ends_with_the_schedulers_words(make, server, spec):
    server.room = 0
    async with make(room_timeout_s=1) as backend:
        with pytest.raises(SandboxTimeout, match="did not find room within 1 s: 0/1 nodes"):
            async with backend.open(spec):
                pass
        assert not server.objects["pods"]


async def test_policies_that_close_a_network_are_enough_where_net_admin_is_refused(make, server, spec):
    server.baseline = True
    async with make(network_probe=["127.0.0.1:1"]) as backend, backend.open(spec) as box:
        assert (await box.exec("true")).ok
        pod = server.objects["pods"][box.id]
    assert "NET_ADMIN" not in str(pod)
    assert list(server.objects["networkpolicies"]) == ["atropos-agent-no-network"]


async def test_an_open_network_is_refused_where_policies_alone_would_close_it(make, server, spec):
    server.closes = False
    # A daemon that has just made the network names its subnet alone; the machine has the first address there.
    code, subnets = await docker(*("network", "inspect", "bridge", "-f", "{{range .IPAM.Config}}{{.Subnet}} {{end}}"))
    assert code == 0
    host = str(next(ip_network(subnets.split()[0]).hosts()))
    async with await asyncio.start_server(lambda _, writer: writer.close(), host, 0) as listening:
        probe = f"{host}:{listening.sockets[0].getsockname()[1]}"
        async with make(network_off="policy", network_probe=[probe]) as backend:
            with pytest.raises(SandboxDied, match=f"its network can't be closed: the pod reaches {host}"):
                async with backend.open(spec):
                    pass
    assert not server.objects["pods"]


async def test_an_absent_image_is_named(make, server):
    async with make() as backend:
        with pytest.raises(ImageMissing, match="no-such-image-at-all"):
            async with backend.open(SandboxSpec("no-such-image-at-all:1")):
                pass


async def test_the_images_user_is_the_sandboxes(make, server, base_image, docker_backend, tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {base_image}\nRUN useradd -m app\nWORKDIR /srv\nUSER app\n")
    image = await docker_backend.ensure_image(None, context)
    async with make() as backend, backend.open(SandboxSpec(image)) as box:
        assert (await box.exec("id -un; pwd; echo $HOME")).output == "app\n/srv\n/home/app\n"
