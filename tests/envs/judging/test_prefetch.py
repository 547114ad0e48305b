"""What the next task needs is made while the first one's rollouts run."""

import asyncio
import shutil
import threading
import uuid

import aiodocker
import pytest
from scripted_engine import ScriptedEngine

from envs.judging.prefetch import Prefetch
from envs.judging.specs import rollout_spec
from envs.options import EngineConfig
from envs.running.run import open_run
from envs.swe import STARTER
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.types import Seat, Task
from sandboxes.base import ImageMissing
from sandboxes.docker.images.store import pack_context
from sandboxes.local import LocalBackend


@pytest.mark.docker
async def test_the_next_tasks_image_is_built_while_the_firsts_rollouts_run(
    base_image, smollm2_tokenizer, tokenizer_folder, tmp_path
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
        options = {
            "tasks": str(tmp_path / "tasks"),
            "base_image": base_image,
            "warm_sandboxes": 1,
            "tokenizer_name": tokenizer_folder,
            "run_dir": tmp_path / "run",
        }
        env = SWEEnv(SWEEnvConfig(**options), [EngineConfig(base_url=engine.url, model_name="scripted")])
        async with open_run(env) as run, aiodocker.Docker() as client:
            first = (await run.next_group()).task
            (other,) = [task for task in env.tasks()[0] if task.id != first.id]
            making = asyncio.create_task(run.rollouts.make(first, Seat()))
            image = f"atropos-task:{pack_context(other.context, base_image)[1]}"
            spec = rollout_spec(other, image)
            try:
                async with asyncio.timeout(60):
                    while not (engine.requests and env.backend.ready(spec)):
                        assert not making.done()
                        await asyncio.sleep(0.05)
                assert (await client.images.inspect(image))["Id"]
            finally:
                go_on.set()
                rollout, _ = await making
        assert rollout.verdict.reward == 0
        async with aiodocker.Docker() as client:
            for task in (first, other):
                await client.images.delete(f"atropos-task:{pack_context(task.context, base_image)[1]}", force=True)


class Slow(LocalBackend):
    """Its images take as long as `there` is not set, and are missing where it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = []
        self.there = asyncio.Event()

    async def ensure_image(self, name, context=None):
        self.asked.append(name)
        await self.there.wait()
        if name == "missing":
            raise ImageMissing("no such image")
        return name


async def test_an_image_is_asked_for_once_at_a_time_and_its_failure_is_the_rollouts_matter():
    backend = Slow()
    async with Prefetch(backend, 2) as prefetch:
        for image in ("one", "missing", "one"):
            prefetch.begin(Task(image, "", image=image))
        await asyncio.sleep(0)
        assert backend.asked == ["one", "missing"]
        backend.there.set()
        await asyncio.sleep(0.01)
        prefetch.begin(Task("one", "", image="one"))
        await asyncio.sleep(0)
        assert backend.asked == ["one", "missing", "one"]


async def test_leaving_it_does_not_wait_for_an_image():
    async with asyncio.timeout(5), Prefetch(Slow(), 0) as prefetch:
        prefetch.begin(Task("one", "", image="one"))
        await asyncio.sleep(0)
