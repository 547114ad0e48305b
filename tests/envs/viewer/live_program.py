# ruff: noqa: E402 - the helpers of the tests are found first
"""A run of sums with its page, as a process that a test may kill."""

import asyncio
import logging
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2])]

from scripted_engine import ScriptedEngine
from sums import Sums, half_right
from transformers import AutoTokenizer

from envs.config import AgentEnvConfig
from envs.options import EngineConfig
from envs.running.commands import process_groups
from envs.viewer.live import live_page


class Slow(Sums):
    """Takes its time, so that the run goes on while somebody looks."""

    async def attempt(self, task, seat):
        await asyncio.sleep(0.5)
        return await super().attempt(task, seat)


async def main(directory: Path, tokenizer: str) -> None:
    with ScriptedEngine(half_right, AutoTokenizer.from_pretrained(tokenizer)) as engine:
        config = AgentEnvConfig(
            group_size=4, tokenizer_name=tokenizer, run_dir=directory, total_steps=100_000, max_concurrent_rollouts=4
        )
        env = Slow(config, [EngineConfig(base_url=engine.url, model_name="scripted")])
        async with live_page(directory, "127.0.0.1:0"):
            await process_groups(env)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
