"""Images and containers that are removed from outside at each moment of a rollout: it is made again and solved."""

import asyncio
import contextlib

import pytest
from scripted_engine import ScriptedEngine
from sums import fill
from turns import turn
from writing import works_and_says_so, write_tasks

from envs.options import EngineConfig
from envs.running.run import open_run
from envs.swe.environment import SWEEnv, SWEEnvConfig
from sandboxes.docker import DockerBackend

pytestmark = pytest.mark.docker

PHASES = ("before it opens", "while the agent works", "between the agent and its changes", "while tests run")
WAYS = {
    "system prune": [("system", "prune", "-af")],
    "container prune": [("container", "prune", "-f")],
    "rmi -f": [("rmi", "-f", "IMAGES")],
    "rm -f, then prune": [("rm", "-f", "CONTAINERS"), ("system", "prune", "-af")],
}

TRIED = [
    (starter, way, [phase])
    for phase in PHASES
    for starter, way in (("crun", "system prune"), ("docker", "rm -f, then prune"), ("crun", "rm -f, then prune"))
]
"""One is tried in an ordinary run, by turns: to bring the image back takes seconds of a processor."""


async def docker(daemon, *arguments):
    process = await asyncio.create_subprocess_exec(
        *("docker", "-H", daemon.url, *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    return (await process.communicate())[0].decode().split()


class Struck(SWEEnv):
    """Strikes once, at one moment of the next rollout's first attempt."""

    daemon = starter = way = phase = None

    def make_backend(self):
        return DockerBackend(url=self.daemon.url, starter=self.starter, makes_base=False)

    async def strike(self):
        self.phase, way = None, self.way
        everything = {"CONTAINERS": ("ps", "-aq"), "IMAGES": ("images", "-q")}
        for step in way:
            named = await docker(self.daemon, *everything[step[-1]]) if step[-1] in everything else step[-1:]
            await docker(self.daemon, *step[:-1], *named)
        await self.daemon.load()

    async def at(self, phase):
        if self.phase == phase:
            await self.strike()

    async def attempt(self, task, seat):
        await self.at("before it opens")
        return await super().attempt(task, seat)

    async def _work(self, step, seat, place, *others):
        if self.phase == "while the agent works":
            await place.sandbox.exec("echo begun > begun")
            await self.strike()
        done = await super()._work(step, seat, place, *others)
        await self.at("between the agent and its changes")
        self.later = asyncio.create_task(self.while_tests_run())
        return done

    async def while_tests_run(self):
        await asyncio.sleep(0.4)
        await self.at("while tests run")


@pytest.fixture
def engine(smollm2_tokenizer, tokenizer_folder):
    with ScriptedEngine(works_and_says_so, smollm2_tokenizer, root=tokenizer_folder) as engine:
        yield engine


@pytest.mark.parametrize(
    ("starter", "way", "phases"),
    [
        TRIED[turn(len(TRIED))],
        *(pytest.param(starter, way, PHASES, marks=pytest.mark.slow) for starter in ("crun", "docker") for way in WAYS),
    ],
)
async def test_whatever_is_removed_the_work_is_judged_as_it_was(
    own_daemon, engine, tokenizer_folder, tmp_path, starter, way, phases
):
    write_tasks(tmp_path / "tasks")
    config = SWEEnvConfig(
        tokenizer_name=tokenizer_folder, run_dir=tmp_path / "run", tasks=str(tmp_path / "tasks"), group_size=1
    )
    env = Struck(config, [EngineConfig(base_url=engine.url, model_name="scripted")])
    env.daemon, env.starter = own_daemon, starter
    seen = {}
    async with open_run(env) as run, asyncio.timeout(280):
        for phase in phases:
            env.way, env.phase = WAYS[way], phase
            wire = None
            while wire is None:
                _, wire = await fill(run)
            with contextlib.suppress(asyncio.CancelledError):
                await env.later
            assert env.phase is None, f"nothing was done {phase}"
            seen[phase] = wire["scores"]
    assert seen == {phase: [1.0] for phase in phases}
    assert set(run.metrics.failures) <= {"sandbox", "verifier"}
