"""An optimiser of prompts: it climbs on the mean rewards of groups, while the run goes on.

python examples/prompts.py http://localhost:9001/v1
"""

import asyncio
import sys
from statistics import fmean

from environment import Products

from envs.cli.starting import open_env
from envs.config import AgentEnvConfig
from envs.options import EngineConfig, Options
from envs.running.feed import Feed, feed
from envs.types import Task

HINTS = ("Work step by step.", "Use the calculator.", "Answer with the number alone.", "Check the result.")


async def climb(fed: Feed, tasks: list[Task], hints: tuple[str, ...] = HINTS) -> str:
    best, most = "", float("-inf")
    for hint in hints:  # a model that reads the rollouts so far, `open_run(fed.run.env.run_dir)`, writes better ones
        fed.resources["system_prompt"] = text = f"{best} {hint}".strip()
        groups = await asyncio.gather(*(fed.ask(task, members=4, name=f"{task.id}: {text}") for task in tasks))
        mean = fmean(row.score for group in groups for row in group.scored.rows)
        best, most = (text, mean) if mean > most else (best, most)
    return best


async def main(url: str = "http://localhost:9001/v1") -> None:
    env = await open_env(Products, "feed", Options(env=AgentEnvConfig(), openai=[EngineConfig(base_url=url)]))
    async with feed(env) as fed:
        print(await climb(fed, list(env.tasks()[0][:2])))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
