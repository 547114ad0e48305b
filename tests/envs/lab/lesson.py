"""The smoke preset without Docker: its policy, the real engine, trainer API and trainer, and an
environment whose rollouts work in temporary directories."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from atropos_agent.formats.base import DEFAULT_PREAMBLE
from envs.base import AgentEnv
from envs.cli.starting import check_tokenizer
from envs.config import AgentEnvConfig
from envs.functions import LLM, rollout
from envs.lab import smoke
from envs.lab.curve import Rise, rise
from envs.lab.synthetic import TOOLS, WORKING_DIR
from envs.options import EngineConfig
from envs.types import Outcome, Seat, Task, Verdict
from sandboxes.base import Sandbox, SandboxSpec
from sandboxes.local import LocalBackend
from tools import ToolCall, ToolRegistry, ToolResult, default_tools


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


@rollout(tasks=[])
async def lesson(task: Task, llm: LLM, sandbox: Sandbox) -> float:
    """The same lesson as a function, with the official client: it goes through the gateway."""
    tools = default_tools(sandbox, TOOLS)
    system = f"{DEFAULT_PREAMBLE}\n\nYou work in {WORKING_DIR}."
    messages: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": task.instruction}]
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key, max_retries=0, timeout=300.0) as client:
        for _ in range(2):
            asked: Any = {"model": llm.model, "messages": messages, "tools": tools.schemas}
            message = (await client.chat.completions.create(**asked)).choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            done = not message.tool_calls
            for call in message.tool_calls or ():
                result = await execute(tools, call)
                done = done or result.done
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result.content})
            if done:
                break
    return float((await sandbox.exec("test -f ready -a ! -s ready")).exit_code == 0)


async def execute(tools: ToolRegistry, call: Any) -> ToolResult:
    try:
        arguments = json.loads(call.function.arguments)
    except ValueError as error:
        return ToolResult(f"Error: {error}", is_error=True)
    if not isinstance(arguments, dict):
        return ToolResult("Error: the arguments are no object", is_error=True)
    return await tools.execute(ToolCall(call.function.name, arguments, call.id))


class FunctionLesson(lesson.environment):  # type: ignore[name-defined,misc]
    @classmethod
    def load_tasks(cls, config: AgentEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        train, held_out = Lesson.load_tasks(config)
        return [replace(task, workdir=WORKING_DIR) for task in train], held_out


def script_lesson(script: Callable[[LLM, str, str, Callable[[str], Awaitable[str]]], Awaitable[None]]) -> Any:
    """The same lesson, with an agent of tests/envs/lab/clients.py."""

    @rollout(tasks=[], tolerates=["tool_choice"])
    async def works(task: Task, llm: LLM, sandbox: Sandbox) -> float:
        async def run(command: str) -> str:
            return (await sandbox.exec(command)).output

        await script(llm, f"{DEFAULT_PREAMBLE}\n\nYou work in {WORKING_DIR}.", task.instruction, run)
        return float((await sandbox.exec("test -f ready -a ! -s ready")).exit_code == 0)

    return type("ScriptLesson", (works.environment,), {"load_tasks": FunctionLesson.load_tasks})


async def environment(
    run_dir: Path, api: str, engine: str, model: Path, env_cls: type[AgentEnv] = Lesson, **more: Any
) -> AgentEnv:
    usual = {
        "rollout_server_url": api,
        "tokenizer_name": str(model),
        "run_dir": run_dir,
        "group_size": 8,
        "max_num_workers": 4,
        "max_concurrent_rollouts": 32,
        "max_batches_offpolicy": 1,
        "max_steps": 2,
        "max_reply_tokens": 48,
        "max_token_length": 1024,
        "ensure_scores_are_not_same": False,
    }
    config = env_cls.env_config_cls(**usual | more)
    lesson = env_cls(config, [EngineConfig(base_url=engine, model_name="default")])
    await check_tokenizer(lesson)
    return lesson


async def learn(
    trainer: Any,
    api: str,
    engine: str,
    out: Path,
    *options: str,
    env_cls: type[AgentEnv] = Lesson,
    model: Path | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """Train until the trainer is done. Returns its steps. model: the smoke preset's where none is given."""
    model = model or await asyncio.to_thread(smoke.model, DEFAULT_CACHE)
    given = trainer.parse(
        ["--model", str(model), "--api", api, "--engine", engine, "--out", str(out), "--batch-size", "32", *options]
    )
    lesson = await environment(out / "environment", api, f"{engine}/v1", model, env_cls, **more)
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
