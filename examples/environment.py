"""An environment of one's own: sums, with a calculator.

python examples/environment.py process --openai.base_url http://localhost:9001/v1 --env.total_steps 4
"""

import random
import sys

from envs.base import AgentEnv
from envs.cli import run
from envs.types import Outcome, Task, Verdict
from tools import ToolRegistry, calculator


class Sums(AgentEnv):
    name = "sums"

    @classmethod
    def load_tasks(cls, config):
        rng = random.Random(config.seed)
        pairs = [(rng.randint(10, 999), rng.randint(10, 999)) for _ in range(110)]
        tasks = [Task(f"sum-{a}-{b}", f"What is {a} * {b}?", metadata={"answer": a * b}) for a, b in pairs]
        return tasks[:100], tasks[100:]

    async def attempt(self, task, seat):
        result = await self.agent(seat, ToolRegistry([calculator])).run(task.instruction)
        right = str(task.metadata["answer"]) in result.final_response
        return Outcome(result, Verdict(float(right), "the product is in the answer" if right else "it is not"))


if __name__ == "__main__":
    sys.exit(run(Sums))
