"""A storm: every fault now and then, all at once, for minutes. No group is lost or doubled, and none is a false 0.

STORM_S=3600 pytest -m slow tests/envs/faults/test_storm.py -s

The environment is a program of its own with real sandboxes, on a Docker daemon of its own that is pruned; the trainer
API is the real one, and is emptied; the inference server is scripted. STORM_WITHOUT=NAME,NAME leaves strikes out.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from pathlib import Path

import httpx
import pytest
from proxy import FAULTS
from scripted_engine import ScriptedEngine
from small_disk import small_disk
from world import HERE, SIZE, World
from writing import works_and_says_so, write_tasks

from envs.records.metrics import Metrics
from envs.running.group import group_outcomes
from envs.types import GroupState
from sandboxes.docker.crun.reap import OWNERS

SECONDS = float(os.environ.get("STORM_S", "240"))
SHARE = 0.03
"""Of requests that are spoilt."""
CALM_S = 25.0
"""Without faults at the end, so that what was begun comes to its end."""

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(SECONDS + 600)]


class AtRandom:
    """A plan without end that spoils a share of what comes."""

    def __init__(self, rng):
        self._rng, self.spoilt = rng, Counter()

    def __bool__(self):
        return True

    def popleft(self):
        if self._rng.random() >= SHARE:
            return None
        fault = self._rng.choice([*(fault for fault in FAULTS if fault != "hang"), 429, 500, 503])
        self.spoilt[str(fault)] += 1
        return fault


async def docker(world, *arguments):
    command, quiet = ("docker", "-H", world.daemon.url, *arguments), asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=quiet)
    return (await process.communicate())[0].decode().split()


async def prunes(world):
    await docker(world, "system", "prune", "-af")
    await world.daemon.load()


async def prunes_containers(world):
    await docker(world, "container", "prune", "-f")


async def removes_images(world):
    await docker(world, "rmi", "-f", *await docker(world, "images", "-q"))
    await world.daemon.load()


async def removes_everything(world):
    await docker(world, "rm", "-f", *await docker(world, "ps", "-aq"))
    await prunes(world)


async def kills_a_container(world):
    for name in (await docker(world, "ps", "-q"))[:1]:
        await docker(world, "kill", name)


async def empties_the_api(world):
    async with httpx.AsyncClient(base_url=world.api.url) as http:
        await http.get("/reset_data")
    world.trainer.consumer._registered = False


async def starts_the_api_again(world):
    world.api.stop()
    await asyncio.to_thread(world.api.start)


async def kills_tests(world):
    for _ in range(50):
        if killed := await asyncio.to_thread(kill_tests, world):
            world.killed_tests += killed
            return
        await asyncio.sleep(0.1)


def kill_tests(world):
    """Kill test.sh, and no more, in the sandboxes of the storm's own. Returns how many there were."""
    owners, killed = [folder.name for folder in (world.daemon.folder / "data" / OWNERS).glob("*")], 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"/tests/test.sh" in (process / "cmdline").read_bytes() and any(
                f"atropos-{owner}" in (process / "cgroup").read_text() for owner in owners
            ):
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
    return killed


async def kills_the_daemon(world):
    await world.daemon.end(signal.SIGKILL)
    await world.daemon.start()


async def kills_us(world):
    world.process.kill()
    await asyncio.to_thread(world.process.wait, 30)
    world.start()


async def fills_the_disk(world):
    world.disk.fill()
    await asyncio.sleep(3.0)
    world.disk.make_room()


STRIKES = (
    *(prunes, prunes_containers, removes_images, removes_everything, kills_a_container),
    *(empties_the_api, starts_the_api_again, kills_tests, kills_the_daemon, kills_us, fills_the_disk),
)


@pytest.fixture
async def world(tmp_path, smollm2_tokenizer, tokenizer_folder, run_api, own_daemon):
    write_tasks(tmp_path / "tasks")
    with (
        ScriptedEngine(works_and_says_so, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.05) as engine,
        small_disk(tmp_path / "disk", 256) as disk,
    ):
        async with World(
            *(tmp_path, engine, run_api, disk),
            program=(HERE / "swe_program.py",),
            options=(f"--env.tasks={tmp_path / 'tasks'}", "--env.tools=terminal"),
            env={"DOCKER_HOST": own_daemon.url},
        ) as world:
            world.daemon, world.killed_tests = own_daemon, 0
            yield world


async def rages(world, rng, seconds):
    """Strike again and again. Returns how often each was."""
    strikes = [one for one in STRIKES if one.__name__ not in os.environ.get("STORM_WITHOUT", "").split(",")]
    done, clock = Counter(), asyncio.get_running_loop()
    end = clock.time() + seconds
    while clock.time() < end:
        await asyncio.sleep(rng.uniform(0.5, 5.0))
        strike = rng.choice(strikes)
        await strike(world)
        done[strike.__name__] += 1
        assert world.process.poll() is None, f"after {strike.__name__} it ended by itself: {world.tail()}"
    return done


async def test_no_group_is_lost_or_doubled_in_a_storm(world):
    rng = random.Random(int(SECONDS))
    await world.works(2, seconds=180)
    plans = world.to_engine.plan, world.to_api.plan
    world.to_engine.plan, world.to_api.plan = spoiling = AtRandom(rng), AtRandom(rng)
    done = await rages(world, rng, SECONDS)
    world.to_engine.plan, world.to_api.plan = plans
    await asyncio.sleep(CALM_S)
    await world.works(4, seconds=180)
    await world.end(signal.SIGTERM)
    await asyncio.sleep(2.0)

    states = {state: {outcome.number for outcome in group_outcomes(world.run_dir, [state])} for state in GroupState}
    print(f"{SECONDS:g} s: {dict(done)}; {world.killed_tests} test.sh killed")
    print(f"spoilt at the inference server {dict(spoiling[0].spoilt)}, at the API {dict(spoiling[1].spoilt)}")
    print(f"{ ({state.value: len(numbers) for state, numbers in states.items() if numbers}) } in the journal")
    rows, numbers = world.trainer.rows, world.trainer.numbers
    print(f"{numbers.total()} groups in {rows.total()} rows at the trainer")
    print(dict(Metrics.from_json((world.run_dir / "metrics.json").read_bytes()).failures))
    assert world.killed_tests or not done["kills_tests"], "test.sh was killed while it ran"
    assert not world._pulling.done(), world._pulling.exception()  # the trainer has seen a reward other than 1
    rewards = Counter(reward for outcome in group_outcomes(world.run_dir) for reward in outcome.rewards)
    assert set(rewards) <= {1.0}, f"no rollout was scored 0 by an infrastructure failure: {rewards}"
    assert set(numbers.values()) == {1}, "no group reached the trainer twice"
    assert set(rows.values()) == {1}, "no row reached the trainer twice"
    assert rows.total() == SIZE * len(numbers), "groups reach the trainer whole"
    kept = {GroupState.DELIVERED, GroupState.OUTBOX, GroupState.WORKING, GroupState.UNCERTAIN}
    assert {state for state, found in states.items() if found} <= kept
    assert len(states[GroupState.DELIVERED] - set(numbers)) < 2, "what does not fill a batch is in the API's queue"
    assert sum(map(len, states.values())) == 1 + max(set().union(*states.values())), "every group has its row"
