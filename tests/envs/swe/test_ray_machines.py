"""A Ray cluster of machines with a Docker daemon each: one is cut off, one loses its power, one its Docker daemon."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest
from programs import Program
from scripted_engine import ScriptedEngine

from envs.swe import STARTER

pytest.importorskip("ray", reason="Ray is not installed: pip install 'atropos-agent[ray]'")
from ray_machines import HEAD, Head, RayMachine

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1500)]

TASK = "create-notes"
GROUPS, SIZE = 50, 4


def solves(prompt):
    if "<tool_response>\n" in prompt.rsplit("<|im_start|>user", 2)[-1]:
        return '<tool_call>{"name": "submit", "arguments": {}}</tool_call>'
    script = (STARTER / TASK / "solution" / "solve.sh").read_text()
    return f"<tool_call>{json.dumps({'name': 'terminal', 'arguments': {'command': script}})}</tool_call>"


@pytest.fixture
async def cluster(base_image):
    """The head and two machines that have joined; a third hasn't yet."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip")
    async with AsyncExitStack() as stack:
        # Not pytest's own folder: Ray's sockets would have names of more than 107 characters.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)))
        head = stack.enter_context(Head(folder))
        machines = [RayMachine(folder / str(number), number) for number in (4, 5, 6)]
        for machine in machines:
            stack.push_async_callback(machine.leave)
            await machine.start()
            await asyncio.to_thread(machine.has, base_image)
        for machine in machines[:2]:
            machine.join(head)
        yield head, machines


@pytest.fixture
def engine(cluster, smollm2_tokenizer, tokenizer_folder):
    with ScriptedEngine(solves, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.5, host=HEAD) as engine:
        yield engine


class Run:
    """A run over the cluster, which may be started several times."""

    def __init__(self, folder, options):
        self.groups = folder / "run/groups.jsonl"
        self._log = folder / "log"
        self._flags = [f"--{name}={value}" for name, value in {**options, "env.run_dir": folder / "run"}.items()]

    def start(self):
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = Program(["-m", "envs.swe", "process", *self._flags], stdout=self._log, env=paths)

    def written(self):
        lines = self.groups.read_bytes().splitlines() if self.groups.exists() else ()
        return [orjson.loads(line) for line in lines]

    async def until(self, what, seconds=600):
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.end_of_log()
            assert time.monotonic() < deadline, self.end_of_log()
            await asyncio.sleep(0.1)

    async def more(self, groups):
        enough = len(self.written()) + groups
        await self.until(lambda: len(self.written()) >= enough)

    def said(self, what, machine):
        """How often something was logged of a machine."""
        lines = self._log.read_text().splitlines()
        return sum(what in line and f"{machine.address}/" in line for line in lines)

    async def ends(self):
        assert await asyncio.to_thread(self.process.wait, 600) == 0, self.end_of_log()

    def end_of_log(self):
        return self._log.read_text()[-3000:]


@pytest.fixture
def run(cluster, engine, tmp_path):
    """Makes a run."""
    head, _ = cluster
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / TASK).symlink_to(STARTER / TASK)
    made = []

    def make(groups, **more):
        options = {
            "openai.base_url": engine.url,
            "env.workers": "ray",
            "env.ray.address": head.address,
            "env.ray.rollouts": 6,
            "env.tasks": tmp_path / "tasks",
            "env.total_steps": groups,
            "env.group_size": SIZE,
            "env.max_concurrent_rollouts": 12,
            "env.ensure_scores_are_not_same": "false",
        }
        made.append(Run(tmp_path, options | {f"env.{name}": value for name, value in more.items()}))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.process.kill()


def check(run, groups):
    """What must hold of a run, whatever befell it."""
    written = run.written()
    rollouts = Counter(row for group in written for row in group["generation_params"]["rollout_ids"])
    assert len(written) == groups
    assert [group["scores"] for group in written] == [[1.0] * SIZE] * groups, "no zero is ours"
    assert len(rollouts) == groups * SIZE and set(rollouts.values()) == {1}


@pytest.mark.parametrize("starter", ["docker", "crun"])
async def test_a_run_loses_nothing_while_nodes_are_cut_off_killed_and_without_docker(cluster, engine, run, starter):
    head, (one, two, three) = cluster
    engine.delay_s = 5.0
    run = run(GROUPS, sandbox_starter=starter)
    await run.more(3)
    three.join(head)
    await run.until(lambda: run.said("is ready", three))
    await run.more(3)
    one.pull_cable()
    await run.until(lambda: run.said("has left the cluster", one))
    await run.more(3)
    await two.power_off()
    await run.until(lambda: run.said("has left the cluster", two))
    await run.more(3)
    one.plug_in()
    await asyncio.to_thread(one.node_ends, 120)  # Ray has given the node up, and whoever started it starts it again
    one.join(head)
    await two.boot()
    two.join(head)
    await run.until(lambda: run.said("is ready", one) == run.said("is ready", two) == 2)
    assert len(run.written()) < GROUPS - 5, "those that are back have something to do"
    engine.delay_s = 0.5
    await three.kill()
    await run.more(5)
    await three.boot()
    await run.ends()
    check(run, GROUPS)
    assert [machine.left() for machine in (one, two, three)] == [[], [], []]


async def test_a_killed_driver_leaves_nothing_on_the_nodes_and_goes_on(cluster, run):
    _, (one, two, _) = cluster
    run = run(12)
    await run.more(4)
    await run.until(lambda: one.left() and two.left())
    run.process.kill()
    await asyncio.to_thread(run.process.wait)
    async with asyncio.timeout(120):
        while one.left() or two.left():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.5)
    run.start()
    await run.ends()
    check(run, 12)
    assert [one.left(), two.left()] == [[], []]
