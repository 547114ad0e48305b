"""Sandboxes with a network, which do not reach each other."""

import asyncio
from pathlib import Path

import pytest

from sandboxes.base import Limits, SandboxSpec
from sandboxes.docker.daemon.client import connect
from sandboxes.docker.daemon.network import ensure_network

pytestmark = pytest.mark.docker

ADDRESS = (
    "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.connect(('192.0.2.1', 9)); print(s.getsockname()[0])"
)
REACH = "import socket, sys; socket.create_connection((sys.argv[1], 8000), timeout=2)"


async def test_sandboxes_with_a_network_do_not_reach_each_other(docker_backend, base_image):
    filtered = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if not await asyncio.to_thread(filtered.exists):
        pytest.skip("this machine filters nothing on bridges")
    spec = SandboxSpec(base_image, limits=Limits(network=True))
    async with docker_backend.open(spec) as one, docker_backend.open(spec) as other:
        address = (await one.exec(["python3", "-c", ADDRESS])).output.strip()
        await one.exec("python3 -m http.server 8000 >/dev/null 2>&1 &")
        for _ in range(50):
            if (await one.exec(["python3", "-c", REACH, address])).ok:
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("nothing is served")
        refused = await other.exec(["python3", "-c", REACH, address])
        assert "timed out" in refused.output
        _, writer = await asyncio.open_connection(address, 8000)  # as far as the server goes, it is there
        writer.close()


async def test_the_network_is_made_once(base_image):
    async with connect() as client:
        assert len(set(await asyncio.gather(*(ensure_network(client, None) for _ in range(4))))) == 1
