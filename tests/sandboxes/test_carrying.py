"""Forks that carry sessions along."""

import pytest

from sandboxes.base import SandboxSpec
from sandboxes.carrying import Busy, CarryingSandbox

pytestmark = pytest.mark.docker


async def test_a_session_of_a_fork_begins_where_the_other_one_is(docker_backend, base_image):
    async with docker_backend.open(SandboxSpec(base_image)) as sandbox:
        carrying = CarryingSandbox(sandbox)
        session = await carrying.session()
        await session.run("mkdir /tmp/deep; cd /tmp/deep; export WORD=milk; say() { echo $WORD; }; umask 027; false")
        async with carrying.carry() as fork:
            theirs = await fork.session()
            assert (await theirs.run("echo $?; pwd; say; umask")).output.split() == ["1", "/tmp/deep", "milk", "0027"]
            await theirs.run("WORD=bread; cd /; touch /tmp/theirs")
            async with fork.carry() as second:
                again = await second.session()
                assert (await again.run("pwd; say; ls /tmp")).output.split() == ["/", "bread", "deep", "theirs"]
        assert (await session.run("pwd; say; ls /tmp")).output.split() == ["/tmp/deep", "milk", "deep"]


async def test_a_sandbox_with_a_program_in_the_background_is_not_forked(docker_backend, base_image):
    async with docker_backend.open(SandboxSpec(base_image)) as sandbox:
        carrying = CarryingSandbox(sandbox)
        session = await carrying.session()
        await session.run("sleep 100 & echo $! > /tmp/id")
        with pytest.raises(Busy, match=r"process \d+ runs in the background"):
            async with carrying.carry():
                pass
        await session.run("kill $(cat /tmp/id); wait")
        async with carrying.carry() as fork:
            assert (await (await fork.session()).run("cat /tmp/id")).output.strip().isdecimal()
