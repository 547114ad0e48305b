"""The smoke preset without Docker: its policy, the real engine, trainer API and trainer, and an
environment whose rollouts work in temporary directories."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from envs.base import AgentEnv
from envs.config import AgentEnvConfig
from envs.lab import smoke
from envs.lab.curve import Rise, rise
from envs.lab.synthetic import TOOLS, WORKING_DIR
from envs.options import EngineConfig
from envs.starting import check_tokenizer
from envs.types import Outcome, Seat, Task, Verdict
from sandboxes.base import SandboxSpec
from sandboxes.local import LocalBackend
from tools import default_tools


class Lesson(AgentEnv):
    """Make an empty file named ready."""

    name = "lesson"

    @classmethod
    def load_tasks(cls, config: AgentEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        train, held_out = smoke.tasks()
        return [Task(task.instruction, task.instruction) for task in train], [
            Task(task.instruction, task.instruction) for task in held_out
        ]

    async def setup(self, resources: AsyncExitStack) -> None:
        self.backend = await resources.enter_async_context(LocalBackend())

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        async with self.backend.open(SandboxSpec("", workdir=WORKING_DIR)) as sandbox:
            agent = self.agent(seat, default_tools(sandbox, TOOLS), working_dir=WORKING_DIR)
            result = await agent.run(task.instruction)
            made = await sandbox.exec("test -f ready -a ! -s ready")
        return Outcome(result, Verdict(float(made.exit_code == 0), ""))


async def environment(run_dir: Path, api: str, engine: str, model: Path) -> Lesson:
    config = AgentEnvConfig(
        rollout_server_url=api,
        tokenizer_name=str(model),
        run_dir=run_dir,
        group_size=8,
        max_num_workers=4,
        max_concurrent_rollouts=32,
        max_batches_offpolicy=1,
        max_steps=2,
        max_reply_tokens=48,
        max_token_length=1024,
        ensure_scores_are_not_same=False,
    )
    lesson = Lesson(config, [EngineConfig(base_url=engine, model_name="default")])
    await check_tokenizer(lesson)
    return lesson


async def learn(trainer: Any, api: str, engine: str, out: Path, *options: str) -> list[dict[str, Any]]:
    """Train until the trainer is done. Returns its steps."""
    model = await asyncio.to_thread(smoke.model, DEFAULT_CACHE)
    given = trainer.parse(
        ["--model", str(model), "--api", api, "--engine", engine, "--out", str(out), "--batch-size", "32", *options]
    )
    lesson = await environment(out / "environment", api, f"{engine}/v1", model)
    serving = asyncio.create_task(lesson.env_manager())
    training = asyncio.create_task(trainer.train(given))
    await asyncio.wait({serving, training}, return_when=asyncio.FIRST_COMPLETED)
    if not training.done():
        await serving
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await training
    return [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]


def risen(steps: Sequence[dict[str, Any]]) -> Rise:
    found = rise(steps)
    assert found is not None
    return found


@contextmanager
def corrupted(trainer: Any, groups: Callable[[Any], Any] | None, rows: Callable[[Any], Any] | None) -> Iterator[None]:
    """The trainer's reading of a batch spoilt: its groups before it checks them, or its rows after."""
    right = trainer.rows_of

    def wrong(batch: Any, *args: Any, **kwargs: Any) -> Any:
        made, left_out = right(groups(batch) if groups else batch, *args, **kwargs)
        return [rows(row) if rows else row for row in made], left_out

    trainer.rows_of = wrong
    try:
        yield
    finally:
        trainer.rows_of = right
