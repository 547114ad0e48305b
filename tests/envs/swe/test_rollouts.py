"""Rollouts of the environment with a scripted model: steps of a task, and preparations for the next one."""

import asyncio
import json
import shutil
import threading
import uuid

import aiodocker
import pytest
from scripted_engine import ScriptedEngine
from task_formats import write
from test_steps import two_steps

from atropos_agent.tokens.record import problems
from envs.checking.manifest import CheckResult, write_manifest
from envs.delivery.rows import Origin, score_group
from envs.judging.specs import rollout_spec
from envs.options import EngineConfig
from envs.running.run import open_run
from envs.swe import STARTER
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.tasks.harbor import load_task
from envs.types import Seat
from sandboxes.docker.images.store import pack_context

pytestmark = pytest.mark.docker


@pytest.fixture
def environment(base_image, tokenizer_folder, tmp_path):
    """The environment of the tasks in `tmp_path / "tasks"`, with an engine."""

    def of(engine, **options):
        options |= {"tasks": str(tmp_path / "tasks"), "base_image": base_image, "run_dir": tmp_path / "run"}
        config = SWEEnvConfig(**options, tokenizer_name=tokenizer_folder)
        return SWEEnv(config, [EngineConfig(base_url=engine.url, model_name="scripted")])

    return of


async def test_each_step_is_a_conversation_and_the_rollout_is_judged_once(environment, smollm2_tokenizer, tmp_path):
    two_steps(tmp_path / "tasks", "min_reward = 1.0")

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        if len(prompts) % 2 == 0:
            return "Done."
        call = {"name": "terminal", "arguments": {"command": f"echo {len(prompts)} >> made"}}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"

    prompts: list[str] = []
    with ScriptedEngine(answer, smollm2_tokenizer) as engine:
        env = environment(engine)
        async with open_run(env) as run:
            made, _ = await run.rollouts.make(env.tasks()[0][0], Seat())
    assert "step one" in prompts[0] and "step one" not in prompts[2] and "step two" in prompts[2]
    assert made.verdict.reward == 0.5  # the first step is right, the second is not
    assert {name: made.verdict.metrics[f"reward/{name}"] for name in ("one", "two")} == {"one": 1.0, "two": 0.0}
    result = made.result
    assert [(step.index, step.segment) for step in result.steps] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert [row.segment for row in result.segments] == [0, 1]
    assert problems(result.segments, result.record) == [None, None]
    assert [message["role"] for message in result.messages].count("system") == 2
    assert not score_group([made], Origin(0, "g", "counting")).dropped


PLACED = {
    "task.toml": '[environment]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Serve this folder at port 8123.\n",
    "environment/Dockerfile": "FROM atropos-agent/base:debian12\nWORKDIR /app\n",
    "tests/test.sh": "python3 -m pytest -q /tests/test_it.py\necho $((! $?)) > /logs/verifier/reward.txt\n",
    "tests/test_it.py": "from urllib.request import urlopen\n\n"
    "def test_it():\n    assert urlopen('http://127.0.0.1:8123').status == 200\n",
}


@pytest.mark.parametrize(("command", "reward"), [("python3 -m http.server 8123 & sleep 1", 1.0), ("echo lazy", 0.0)])
async def test_what_an_agent_left_running_is_judged_in_place(environment, smollm2_tokenizer, tmp_path, command, reward):
    task = load_task(write(tmp_path / "tasks/placed", PLACED))
    found = CheckResult(task.id, task.digest, "", (1.0,), (0.0,), 1.0, in_place=True)
    write_manifest(tmp_path / "tasks/manifest.json", [found])
    call = json.dumps({"name": "terminal", "arguments": {"command": command}})
    replies = iter([f"<tool_call>\n{call}\n</tool_call>", "Done."])
    with ScriptedEngine(lambda prompt: next(replies), smollm2_tokenizer) as engine:
        env = environment(engine)
        async with open_run(env) as run:
            made, _ = await run.rollouts.make(env.tasks()[0][0], Seat())
    assert made.verdict.reward == reward, made.verdict.explanation
    assert made.verdict.metrics["judged_in_place"] and "tests_unseen" not in made.verdict.metrics
    assert [*made.verdict.tests] == ["test_it.py::test_it"]


async def test_the_next_tasks_image_is_built_while_the_firsts_rollouts_run(
    environment, base_image, smollm2_tokenizer, tmp_path
):
    for name in ("append-eggs", "append-entry"):
        shutil.copytree(STARTER / name, tmp_path / "tasks" / name)
        with (tmp_path / "tasks" / name / "environment" / "Dockerfile").open("a") as dockerfile:
            dockerfile.write(f"RUN echo {uuid.uuid4()} >/never-built-before\n")
    go_on = threading.Event()

    def thinks_long(prompt: str) -> str:
        assert go_on.wait(120)
        return "I give up."

    with ScriptedEngine(thinks_long, smollm2_tokenizer) as engine:
        env = environment(engine, warm_sandboxes=1)
        async with open_run(env) as run, aiodocker.Docker() as client:
            first = (await run.next_group()).task
            (other,) = [task for task in env.tasks()[0] if task.id != first.id]
            making = asyncio.create_task(run.rollouts.make(first, Seat()))
            images = [f"atropos-task:{pack_context(task.context, base_image)[1]}" for task in (first, other)]
            try:
                async with asyncio.timeout(60):
                    while not (engine.requests and env.backend.ready(rollout_spec(other, images[1]))):
                        assert not making.done()
                        await asyncio.sleep(0.05)
                assert (await client.images.inspect(images[1]))["Id"]
            finally:
                go_on.set()
                rollout, _ = await making
        assert rollout.verdict.reward == 0
        async with aiodocker.Docker() as client:
            for image in images:
                await client.images.delete(image, force=True)
