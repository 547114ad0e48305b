"""What judging costs beside the bare test command, and whether many at once stay right.

python benchmarks/judging.py TASK_DIR [--rounds 20] [--at-once 32] [--starters [docker] [crun]] [--repeats 3]

Per round, one after the other: the task's own tests run in a sandbox by a single command, with the reference
solution applied (bare), and the reference's changes judged in a sandbox that was opened before (judged).

With --starters: what whole rollouts cost whose sandboxes the Docker daemon starts, or crun. A rollout is three commands
of our agent that solve the task, its changes, and their verdict in a fresh sandbox; the agent's replies are written
down. CPU is that of the whole machine, as `sandbox_starts.py` says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path

from sandbox_starts import STARTERS, Costs
from transformers import AutoTokenizer

from atropos_agent.agent import AtroposAgent
from atropos_agent.cpu_engine.model import locate
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.types import AgentConfig
from envs.judging.archives import pack_directory
from envs.judging.changes import Changes, collect_changes
from envs.judging.specs import agent_spec, rollout_spec, verifier_spec
from envs.judging.start_trees import StartTrees
from envs.judging.verifier import open_verifier
from envs.tasks.harbor import load_task
from envs.types import Task
from sandboxes.base import Backend, SandboxSpec
from sandboxes.docker import DockerBackend
from tools import default_tools

COMMANDS = ("ls -la", "git status; grep -rn def . | head", "bash /solution/solve.sh")
AGENT_S = 5.0
"""For how long the agent works, at least: the verifier's sandbox gets ready meanwhile."""


async def reference(backend: Backend, task: Task, image: str) -> Changes:
    """What the reference solution makes."""
    assert task.hidden.solution is not None
    start = await StartTrees(backend).get(task, image)
    async with backend.open(agent_spec(task, image)) as sandbox:
        await sandbox.upload(pack_directory(task.hidden.solution), "/solution")
        await sandbox.exec(["bash", "/solution/solve.sh"], timeout=600.0)
        return await collect_changes(sandbox, start, task.hidden)


async def bare(backend: Backend, task: Task, image: str, changes: Changes) -> tuple[float, bool]:
    """Seconds of test.sh alone, and whether it ended well: a package's own test of times may fail under load."""
    assert task.hidden.tests is not None
    async with backend.open(verifier_spec(task, image)) as sandbox:
        await sandbox.upload(pack_directory(task.hidden.tests), "/tests")
        await sandbox.upload(changes.archive, sandbox.workdir)
        began = time.perf_counter()
        ran = await sandbox.exec(["bash", "/tests/test.sh"], timeout=600.0, user="root")
        return time.perf_counter() - began, ran.ok


async def judged(
    backend: Backend, task: Task, image: str, changes: Changes, wanted: float, agent_s: float = AGENT_S
) -> tuple[float, bool]:
    """Seconds of a verdict, its sandbox having been opened `agent_s` before, and whether it is the wanted one."""
    async with open_verifier(backend, task, image) as verifier:
        await asyncio.sleep(agent_s)
        began = time.perf_counter()
        verdict = await verifier(changes)
        if verdict.reward != wanted:
            print(f"rewarded with {verdict.reward:g}, not {wanted:g}: {verdict.explanation[-1000:]}")
        return time.perf_counter() - began, verdict.reward == wanted


class Work:
    """A rollout of three commands that solve a task, written down for an inference server without a model."""

    def __init__(self, task: Task, spec: Callable[[Task, str], SandboxSpec] = rollout_spec) -> None:
        self.spec = spec
        assert task.hidden.solution is not None
        self.task = task
        self.solution = pack_directory(task.hidden.solution)
        self.tokenizer = AutoTokenizer.from_pretrained(locate("tiny"))
        calls = [{"name": "terminal", "arguments": {"command": command}} for command in COMMANDS]
        self.replies = [f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls]

    async def rollout(self, backend: Backend, starts: StartTrees, image: str) -> float:
        """Make and judge one. Returns its reward."""
        task = self.task
        async with backend.open(self.spec(task, image)) as sandbox:
            await sandbox.upload(self.solution, "/solution")
            server = ScriptedServer([*self.replies, "It is done."], self.tokenizer)
            agent = AtroposAgent(server, default_tools(sandbox, ("terminal",)), AgentConfig(), self.tokenizer)
            result = await agent.run(task.instruction)
            assert len(result.steps) == len(COMMANDS) + 1, result.error
            changes = await collect_changes(sandbox, await starts.get(task, image), task.hidden)
        async with open_verifier(backend, task, image) as verifier:
            return (await verifier(changes)).reward


async def rollouts(task: Task, repeats: int, rounds: int = 6, starters: Collection[str] = STARTERS) -> None:
    """Print what a judged rollout costs with either starter, one by one and eight at once."""
    costs = Costs(repeats)
    await costs.begin()
    for starter, spec, how in (
        ("docker", agent_spec, ""),
        ("crun", agent_spec, ", the agent's sandbox new"),
        ("crun", rollout_spec, ""),
    ):
        if starter not in starters:
            continue
        async with DockerBackend(starter=starter) as backend:
            image = await backend.ensure_image(task.image, task.context)
            one = partial(Work(task, spec).rollout, backend, StartTrees(backend), image)
            await costs.row(f"{starter}: a judged rollout of three commands{how}", one, rounds)
            rates = [await rate(one, 2 * rounds) for _ in range(repeats)]
            spread = f"{statistics.median(rates):.0f} ({min(rates):.0f}, {max(rates):.0f})"
            print(f"{starter}: {spread} solved rollouts a minute, eight at once", flush=True)


async def rate(one: Callable[[], Awaitable[float]], count: int) -> float:
    """Return how many of `count` rollouts are solved a minute, eight at once."""
    began, turns = time.perf_counter(), asyncio.Semaphore(8)

    async def in_turn() -> float:
        async with turns:
            return await one()

    rewards = await asyncio.gather(*(in_turn() for _ in range(count)))
    return sum(rewards) / (time.perf_counter() - began) * 60


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--starters", nargs="*", choices=STARTERS, help="whole rollouts by these, or by all")
    parser.add_argument("--repeats", type=int, default=3, help="of each figure of --starters")
    options = parser.parse_args()
    task = load_task(options.task)
    if options.starters is not None:
        await rollouts(task, options.repeats, options.rounds, options.starters or STARTERS)
        return
    async with DockerBackend() as backend:
        image = await backend.ensure_image(task.image, task.context)
        changes = await reference(backend, task, image)
        alone, whole = [], []
        for _ in range(options.rounds):
            alone.append(await bare(backend, task, image, changes))
            whole.append(await judged(backend, task, image, changes, 1.0))
        for name, rounds in (("bare", alone), ("judged", whole)):
            seconds, good = [one for one, _ in rounds], sum(good for _, good in rounds)
            found = f"p50 {statistics.median(seconds):.3f} s, least {min(seconds):.3f} s"
            print(f"{name:7} {found}; {good} of {len(rounds)} as they should be")
        ratios = [b / a for (a, _), (b, _) in zip(alone, whole, strict=True)]
        print(f"judged / bare: p50 {statistics.median(ratios):.2f}")
        began = time.perf_counter()
        some = [
            judged(backend, task, image, changes if i % 2 else Changes(), float(i % 2), agent_s=0.0)
            for i in range(options.at_once)
        ]
        right = sum(good for _, good in await asyncio.gather(*some))
        took = time.perf_counter() - began
        print(f"{options.at_once} at once, half of them solved: {right} right, {took:.1f} s")


if __name__ == "__main__":
    asyncio.run(main())
