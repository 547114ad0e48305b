"""An environment of one's own: products, with a calculator.

python examples/environment.py process --openai.base_url http://localhost:9001/v1 --env.total_steps 4
"""

import random
import sys
from collections.abc import Sequence

from envs.base import AgentEnv
from envs.cli import run
from envs.config import AgentEnvConfig
from envs.types import Outcome, Seat, Task, Verdict
from tools import ToolRegistry, calculator


class Products(AgentEnv):
    name = "products"

    @classmethod
    def load_tasks(cls, config: AgentEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        rng = random.Random(config.seed)
        pairs = [(rng.randint(10, 999), rng.randint(10, 999)) for _ in range(110)]
        tasks = [Task(f"{a}-times-{b}", f"What is {a} * {b}?", metadata={"answer": a * b}) for a, b in pairs]
        return tasks[:100], tasks[100:]

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        result = await self.agent(seat, ToolRegistry([calculator])).run(task.instruction)
        right = str(task.metadata["answer"]) in result.final_response
        return Outcome(result, Verdict(float(right), "the product is in the answer" if right else "it is not"))


if __name__ == "__main__":
    sys.exit(run(Products))
