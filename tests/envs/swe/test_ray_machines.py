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


@pytest.fixture(params=["docker", "crun"])
def process(request, cluster, engine, tmp_path):
    """Starts a run over the cluster."""
    head, _ = cluster
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / TASK).symlink_to(STARTER / TASK)
    options = {
        "openai.base_url": engine.url,
        "env.workers": "ray",
        "env.ray.address": head.address,
        "env.ray.rollouts": 6,
        "env.sandbox_starter": request.param,
        "env.tasks": tmp_path / "tasks",
        "env.run_dir": tmp_path / "run",
        "env.total_steps": GROUPS,
        "env.group_size": SIZE,
        "env.max_concurrent_rollouts": 12,
        "env.ensure_scores_are_not_same": "false",
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    process = Program(
        ["-m", "envs.swe", "process", *flags],
        stdout=tmp_path / "log",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    yield process
    process.kill()


async def test_a_run_loses_nothing_while_nodes_are_cut_off_killed_and_without_docker(cluster, process, tmp_path):
    head, (one, two, three) = cluster
    log = tmp_path / "log"

    def written():
        path = tmp_path / "run/groups.jsonl"
        return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    async def until(what, seconds=600):
        deadline = time.monotonic() + seconds
        while not what():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            await asyncio.sleep(0.1)

    async def more(groups):
        enough = len(written()) + groups
        await until(lambda: len(written()) >= enough)

    def said(what, machine):
        return sum(what in line and f"{machine.address}/" in line for line in log.read_text().splitlines())

    await more(3)
    three.join(head)
    await until(lambda: said("is ready", three))
    await more(3)
    one.pull_cable()
    await until(lambda: said("has left the cluster", one))
    await more(3)
    await two.power_off()
    await until(lambda: said("has left the cluster", two))
    await more(3)
    one.plug_in()
    await asyncio.to_thread(one.node_ends, 120)  # Ray has given the node up, and whoever started it starts it again
    one.join(head)
    await two.boot()
    two.join(head)
    await until(lambda: said("is ready", one) == said("is ready", two) == 2)
    await three.kill()
    await more(5)
    await three.boot()
    assert process.wait(600) == 0, log.read_text()[-3000:]

    groups = written()
    rollouts = Counter(row for group in groups for row in group["generation_params"]["rollout_ids"])
    assert len(groups) == GROUPS
    assert [group["scores"] for group in groups] == [[1.0] * SIZE] * GROUPS, "no zero is ours"
    assert len(rollouts) == GROUPS * SIZE and set(rollouts.values()) == {1}
    assert [machine.left() for machine in (one, two, three)] == [[], [], []]
