"""A model measured without a trainer, as in a notebook: is it better with a calculator?

python examples/notebook.py http://localhost:9001/v1
"""

import asyncio
import random
import sys

from envs.functions import single_turn
from envs.functions.presets import react
from envs.functions.running import run
from envs.records.read import read_rollouts
from envs.types import Task
from tools import calculator

RNG = random.Random(0)
PAIRS = [(RNG.randint(10, 999), RNG.randint(10, 999)) for _ in range(8)]
TASKS = [{"instruction": f"What is {a} * {b}?", "answer": a * b} for a, b in PAIRS]


def right(task: Task, answer: str) -> float:
    return float(str(task.metadata["answer"]) in answer)


@single_turn(tasks=TASKS, score=right)
def by_heart(prompt: str) -> str:
    return f"{prompt} Answer with the number alone."


async def main(llm: str = "http://localhost:9001/v1") -> None:
    for agent in (by_heart, react([calculator], score=right)):
        rollouts = await run(agent, TASKS, llm=llm, samples=2, temperature=0.7)
        *_, last = read_rollouts(rollouts.run_dir)
        print(f"{rollouts.mean_reward:.2f} right; the last: {last.result.final_response}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
