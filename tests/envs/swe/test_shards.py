"""Several processes share the tasks: on one trainer API, and in one evaluation."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections import Counter

import orjson
import pytest
from programs import Program, run
from scripted_engine import ScriptedEngine

from envs.lab.consumer import Consumer
from envs.swe import STARTER

pytestmark = pytest.mark.docker

TASK, TASKS, SIZE = "create-notes", 6, 2


def every_second(prompt):
    """Solves tasks of even numbers, submits the others as they are."""
    number = int(re.search(r"This is task (\d)", prompt)[1])
    if number % 2 or "<tool_response>\n" in prompt.rsplit("<|im_start|>user", 2)[-1]:
        return '<tool_call>{"name": "submit", "arguments": {}}</tool_call>'
    script = (STARTER / TASK / "solution" / "solve.sh").read_text()
    return f"<tool_call>{json.dumps({'name': 'terminal', 'arguments': {'command': script}})}</tool_call>"


@pytest.fixture
def options(smollm2_tokenizer, tokenizer_folder, base_image, tmp_path):
    """Options of a process with a part of the tasks."""
    for number in range(TASKS):
        folder = tmp_path / "tasks" / f"notes-{number}"
        shutil.copytree(STARTER / TASK, folder)
        with (folder / "instruction.md").open("a") as file:
            file.write(f"\nThis is task {number}.\n")
    with ScriptedEngine(every_second, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.05) as engine:

        def of(name, shard, **more):
            values = {"tasks": tmp_path / "tasks", "run_dir": tmp_path / name, "shard": shard, **more}
            return [f"--openai.base_url={engine.url}", *(f"--env.{key}={value}" for key, value in values.items())]

        yield of


async def test_two_processes_on_one_trainer_api_share_the_tasks(options, run_api, tmp_path):
    groups = {}
    more = {"rollout_server_url": run_api.url, "group_size": SIZE, "max_concurrent_rollouts": 4, "shutdown_s": 1}
    more |= {"equal_rewards": "send", "max_stale_steps": 1000}
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    programs = [
        Program(
            ["-m", "envs.swe", "serve", *options(f"run-{part}", f"{part}/2", **more)],
            stdout=tmp_path / f"log-{part}",
            env=paths,
        )
        for part in (1, 2)
    ]

    async def pull(consumer):
        async for batch in consumer.batches():
            assert not batch.problems
            for group in batch.groups:
                params = group["generation_params"]
                assert params["group_id"] not in groups, "no group twice"
                groups[params["group_id"]] = params["task_id"], params["rollout_ids"]
            if len({task for task, _ in groups.values()}) == TASKS:
                return

    try:
        async with asyncio.timeout(240), Consumer(run_api.url, batch_size=2 * SIZE, poll_s=0.05) as consumer:
            await pull(consumer)
    finally:
        for program in programs:
            program.send_signal(signal.SIGTERM)
        statuses = [await asyncio.to_thread(program.wait, 60) for program in programs]
    assert statuses == [130, 130], [(tmp_path / f"log-{part}").read_text()[-2000:] for part in (1, 2)]
    shares = {}
    for group, (task, _) in groups.items():
        shares.setdefault(group.rpartition("-")[0], set()).add(task)
    first, second = shares.values()
    assert not first & second and len(first) == len(second) == TASKS // 2
    assert set(Counter(row for _, rows in groups.values() for row in rows).values()) == {1}, "no row twice"


async def test_an_evaluation_in_parts_is_joined_to_what_one_process_finds(options, tmp_path):
    for name, shard in [("whole", "1/1"), ("a", "1/2"), ("b", "2/2")]:
        done = await asyncio.to_thread(run, ["-m", "envs.swe", "evaluate", *options(name, shard)])
        assert done.returncode == 0, done.stderr
    out = tmp_path / "joined.json"
    done = await asyncio.to_thread(run, ["-m", "envs.swe", "join", out, tmp_path / "a", tmp_path / "b"])
    assert done.returncode == 0, done.stderr
    joined, whole = orjson.loads(out.read_bytes()), orjson.loads((tmp_path / "whole/eval-0.json").read_bytes())
    assert joined == whole
    assert [task["solved"] for task in whole["tasks"]] == [1, 0] * (TASKS // 2)
