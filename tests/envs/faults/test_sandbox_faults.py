"""Sandboxes that fail under a rollout: it is made again in a fresh one, and the group is complete."""

import asyncio
import signal

import pytest
from sums import Sums, fill, right

from envs.running.run import open_run
from envs.types import InfraError
from sandboxes.base import Limits, SandboxSpec
from sandboxes.docker import DockerBackend

pytestmark = pytest.mark.docker


@pytest.fixture
def policy():
    return right


async def docker(*arguments):
    process = await asyncio.create_subprocess_exec("docker", *arguments, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


COMMANDS = {
    "out of memory": "python3 -c 'x = bytearray(10**9)'",
    "disk full": "head -c 100000000 /dev/zero > /tmp/x",
}


@pytest.fixture
async def docker_backend(base_image):
    """Whose containers can be found by the Docker command line."""
    async with DockerBackend(base_image=base_image, starter="docker") as backend:
        yield backend


class InDocker(Sums):
    """Sums in sandboxes, the first of which has a fault."""

    backend = image = fault = None
    opened = 0

    async def attempt(self, task, seat):
        fault = self.fault if not self.opened else None
        self.opened += 1
        limits = Limits(memory_mb=1 if fault == "start refused" else 128, disk_mb=8)
        image = "atropos/no-such-image" if fault == "image missing" else self.image
        async with self.backend.open(SandboxSpec(image, limits=limits)) as sandbox:
            if fault in ("kill", "rm", "pause"):
                await docker(fault, *(["-f"] if fault == "rm" else []), sandbox.id)
            done = await sandbox.exec(COMMANDS.get(fault, "true"), timeout=3.0)
            if done.timed_out:
                raise InfraError("sandbox", "a command that does nothing timed out")
            assert done.ok == (fault not in COMMANDS), "what a command does to itself is its result"
            return await super().attempt(task, seat)


@pytest.mark.parametrize(
    ("fault", "failures"),
    [
        ("kill", {"sandbox": 1}),
        ("rm", {"sandbox": 1}),
        pytest.param("pause", {"sandbox": 1}, marks=pytest.mark.slow),  # waits for the command and its grace
        ("image missing", {"sandbox": 1}),
        ("start refused", {"sandbox": 1}),
        ("out of memory", {}),
        ("disk full", {}),
    ],
)
async def test_a_sandbox_that_fails_costs_itself(docker_backend, base_image, engine, make_env, fault, failures):
    env = make_env(InDocker, group_size=2)
    env.backend, env.image, env.fault = docker_backend, base_image, fault
    async with open_run(env) as run, asyncio.timeout(120):
        _, wire = await fill(run)
    assert wire["scores"] == [1.0, 1.0]
    assert run.metrics.failures == failures
    assert env.opened == 2 + sum(failures.values())
    await nothing_is_left(docker_backend)


class Working(Sums):
    """Sums that take a few commands each, in sandboxes."""

    backend = image = None

    async def attempt(self, task, seat):
        async with self.backend.open(SandboxSpec(self.image)) as sandbox:
            for _ in range(6):
                await sandbox.exec("sleep 0.5")
            return await super().attempt(task, seat)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_docker_engine_that_is_restarted_costs_no_rollout_its_grade(
    own_daemon, base_image, engine, make_env, number
):
    env = make_env(Working)
    async with DockerBackend(url=own_daemon.url, starter="docker") as backend:
        env.backend, env.image = backend, base_image
        async with open_run(env) as run, asyncio.timeout(120):
            making = asyncio.create_task(fill(run))
            await asyncio.sleep(2.0)
            await own_daemon.end(number)
            await asyncio.sleep(2.0)
            await own_daemon.start()
            _, wire = await making
            while wire is None:
                _, wire = await fill(run)
    assert wire["scores"] == [1.0] * 4
    assert set(run.metrics.failures) <= {"sandbox"}, "what needed the engine is tried again; the rest goes past it"


async def nothing_is_left(backend):
    """Wait until the Docker daemon has ended what was asked of it: a removal under way is still listed."""
    async with asyncio.timeout(120):
        while await owned(backend):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def owned(backend):
    """Containers of a backend, in whatever state."""
    label = f"label=atropos-agent.owner={backend.owner.id}"
    process = await asyncio.create_subprocess_exec(
        "docker", "ps", "-aq", "--filter", label, stdout=asyncio.subprocess.PIPE
    )
    return len((await process.communicate())[0].split())
