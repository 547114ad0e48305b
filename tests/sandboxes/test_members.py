"""Users who are not root: members of the group docker, who can use its daemon, and others, who can't."""

import asyncio
import os
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else"),
]

ROOT = Path(__file__).parents[2]
USE = """
import asyncio, sys
from sandboxes.base import Limits, SandboxSpec
from sandboxes.docker import DockerBackend

async def main():
    async with DockerBackend() as backend:
        async with backend.open(SandboxSpec(sys.argv[1], workdir="/app", limits=Limits(disk_mb=64))) as box:
            print((await box.exec("echo x >f; cat f")).output, end="")
            await box.write_file("g", b"y")
            shell = await box.session()
            print((await shell.run("cat g")).output)
            async with box.fork(1) as (branch,):
                print((await branch.exec("cat f")).output, end="")
            assert len(await box.download(".")) > 1000
            await box.reset()
            print((await box.exec("ls")).output, end="ended\\n")

asyncio.run(main())
"""


async def as_user(*command: str, group: int | None = None) -> tuple[int, str]:
    """Run a command as somebody whose only group this is; None for docker. Returns its exit code and what it prints."""
    env = dict(os.environ) | ({} if group is None else {"MEMBER_GROUP": str(group)})
    pipe, out = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(".ci/member", *command, cwd=ROOT, env=env, stdout=pipe, stderr=out)
    output, _ = await asyncio.wait_for(process.communicate(), 100)
    return process.returncode, output.decode()


async def test_a_member_of_the_group_docker_has_sandboxes(base_image):
    code, output = await as_user(".venv/bin/python", "-c", USE, base_image)
    assert (code, output) == (0, "x\ny\nx\nended\n")


async def test_who_is_no_member_is_told_at_once_how_to_become_one(base_image):
    code, output = await as_user(".venv/bin/python", "-m", "sandboxes", "setup", group=65534)
    assert code == 1
    assert "may not be used by this user" in output and "sudo usermod -aG docker $USER" in output
