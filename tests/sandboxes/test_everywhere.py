"""The conformance suite with its hostile half on engines that are started for it, and in images unlike the base image:
`pytest -m slow -s tests/sandboxes/test_everywhere.py`. The counts stand in docs/measured.md."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from engines import ENGINES

HERE = Path(__file__).parent
SUITE = (
    "test_conformance.py",
    "test_sandbox_process.py",
    "test_ports.py",
    "test_sessions.py",
    "test_lifecycle.py",
    "test_hostile.py",
)
LONG = ("test_each_result_is_its_own_commands[5000]", "test_a_killed_owners_attacked_sandboxes_are_gone[50]")
"""Which have nothing to do with the engine."""

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]


async def suite(*options: str) -> str:
    """Run it in a process of its own, since that makes the engine's address its environment. Returns its last line."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=native", "-p", "no:cacheprovider"]
    command += ["-m", "slow or not slow", *options]
    command += [str(HERE / name) for name in SUITE]
    for name in LONG:
        command += ["--deselect", f"tests/sandboxes/test_hostile.py::{name}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=HERE.parents[1], env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output = (await process.communicate())[0].decode(errors="replace")
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode == 0, output[-6000:]
    return re.findall(r".*\d+ passed.*", output)[-1]


@pytest.mark.parametrize("engine", ENGINES)
async def test_on_an_engine_of_another_kind(engine):
    print(f"\n{engine}: {await suite('--engine', engine)}")


@pytest.mark.parametrize("image", ["no-bash", "no-tmp", "i386", "trixie", "alpine:3.20"])
async def test_in_another_image(image):
    print(f"\n{image}: {await suite('--image', image)}")
