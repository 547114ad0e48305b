"""An environment that adds numbers, the policies that its inference server follows, and runs of it."""

import asyncio
import random
from collections import Counter

from envs.base import AgentEnv
from envs.records.metrics import Metrics
from envs.running.commands import CountPace
from envs.types import Outcome, Task, Verdict
from sandboxes.base import SandboxDied
from tools import ToolRegistry, calculator


class Sums(AgentEnv):
    """Adds numbers; has infrastructure failures where a test says so."""

    name = "sums"

    @classmethod
    def load_tasks(cls, config):
        tasks = [Task(f"sum-{n}", f"What is {n} + {n}?") for n in range(6)]
        return tasks, tasks[:3]

    def failing(self, task, attempt):
        return False

    async def setup(self, resources):
        self.attempts = Counter()

    async def attempt(self, task, seat):
        self.attempts[task.id] += 1
        if self.failing(task, self.attempts[task.id]):
            raise SandboxDied("the sandbox is gone")
        result = await self.agent(seat, ToolRegistry([calculator])).run(task.instruction)
        n = int(task.id.split("-")[1])
        return Outcome(result, Verdict(float(result.final_response.strip() == str(2 * n)), "compared"))


def half_right(prompt):
    """Calls the calculator, then tells the truth half of the time."""
    if "<tool_response>" not in prompt.rsplit("What is", 1)[1]:
        n = prompt.rsplit("What is ", 1)[1].split(" ")[0]
        return f'<tool_call>{{"name": "calculator", "arguments": {{"expression": "{n}+{n}"}}}}</tool_call>'
    answer = prompt.rsplit("<tool_response>\n", 1)[1].split("\n")[0]
    return answer if random.random() < 0.5 else "no idea"


def right(prompt):
    """Calls the calculator, then tells the truth."""
    if "<tool_response>" not in prompt.rsplit("What is", 1)[1]:
        return half_right(prompt)
    return prompt.rsplit("<tool_response>\n", 1)[1].split("\n")[0]


async def fill(run, group=None):
    """Make a group, the next one when None is given. Returns it, and its wire form when it was completed."""
    group = group or await run.next_group()
    scored = await run.fill(group, CountPace(run, 1))
    return group, scored and scored.to_wire()


def metrics_of(env):
    """What a run has counted, when it is over."""
    return Metrics.from_json((env.run_dir / "metrics.json").read_bytes())


async def pulled(consumer, groups, env):
    """Run the environment until the consumer has pulled some groups. Returns them."""
    running = asyncio.create_task(env.env_manager())
    found = []
    try:
        async with asyncio.timeout(120):
            async for batch in consumer.batches():
                if running.done():
                    running.result()
                found += batch.groups
                assert not batch.problems
                if len(found) >= groups:
                    return found
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
