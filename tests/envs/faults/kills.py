"""A driver that is killed again and again while it delivers to a real trainer API, and what must hold then."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

from programs import Program
from proxy import Proxy

from envs.lab.consumer import Consumer
from envs.running.group import group_outcomes
from envs.types import GroupState

HERE = Path(__file__).parent
SIZE = 2


class Trainer:
    """Pulls batches of two groups, and counts rows by their rollouts and groups by their numbers."""

    def __init__(self, url):
        self.consumer = Consumer(url, batch_size=2 * SIZE, poll_s=0.2)
        self.rows, self.numbers = Counter(), Counter()

    async def pull(self):
        async for batch in self.consumer.batches():
            assert not batch.problems
            for group in batch.groups:
                assert set(group["scores"]) == {1.0}, "a fault of ours is no reward of 0"
                params = group["generation_params"]
                self.rows.update(params["rollout_ids"])
                self.numbers[int(params["group_id"].rpartition("-")[2])] += 1

    async def gets(self, more, program):
        """Wait for some more groups."""
        enough = self.numbers.total() + more
        async with asyncio.timeout(120):
            while self.numbers.total() < enough:
                assert program.poll() is None, "the process ended by itself"
                await asyncio.sleep(0.05)


async def kill_again_and_again(engine, run_api, directory, kills, *options, program):
    rng, log = random.Random(kills), directory / "log"

    def start(url):
        command = [
            *(
                HERE / program,
                "serve",
                f"--openai.base_url={engine.url}",
                f"--env.run_dir={directory / 'run'}",
            ),
            *(f"--env.rollout_server_url={url}", f"--env.group_size={SIZE}", "--env.equal_rewards=send"),
            *("--env.max_concurrent_rollouts=4", "--env.max_stale_steps=1000", "--env.shutdown_s=1"),
            *options,
        ]
        paths = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
        return Program(command, stdout=log, env={**os.environ, "PYTHONPATH": paths})

    trainer = Trainer(run_api.url)
    async with trainer.consumer, Proxy(run_api.url) as proxy:
        pulling = asyncio.create_task(trainer.pull())
        proxy.only = b"/scored_data"
        for kill in range(kills):
            # While an answer is slow, the group is stored and not confirmed.
            proxy.plan.clear()
            proxy.plan.extend(rng.choice(["slow", None]) for _ in range(50))
            process = start(proxy.url)
            await trainer.gets(1, process)
            await asyncio.sleep(2 * rng.random())
            number = [signal.SIGKILL, signal.SIGTERM][kill % 2]
            process.send_signal(number)
            status = await asyncio.to_thread(process.wait, 30)
            assert status == (130 if number == signal.SIGTERM else -number), log.read_text()
        proxy.plan.clear()
        process = start(proxy.url)
        await trainer.gets(8, process)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 30)
        await asyncio.sleep(1.0)
        assert not pulling.done(), pulling.exception()
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
    return trainer


async def check(engine, run_api, directory, kills, *options, program="sums_program.py"):
    """Kill it so often. options: more of its own; program: a file beside this one."""
    trainer = await kill_again_and_again(engine, run_api, directory, kills, *options, program=program)
    states = {state: {outcome.number for outcome in group_outcomes(directory / "run", [state])} for state in GroupState}
    counts = {state.value: len(numbers) for state, numbers in states.items() if numbers}
    print(f"{kills} kills: {counts}, {trainer.numbers.total()} groups and {trainer.rows.total()} rows at the trainer")
    assert set(trainer.numbers.values()) == {1}, "no group twice"
    assert set(trainer.rows.values()) == {1}, "no row twice"
    assert trainer.rows.total() == SIZE * len(trainer.numbers)
    delivered = states[GroupState.DELIVERED]
    assert set(trainer.numbers) <= delivered | states[GroupState.OUTBOX]
    assert len(delivered - set(trainer.numbers)) < 2, "what does not fill a batch is in the API's queue; none is lost"
    assert set(counts) <= {"delivered", "outbox", "working"}, "nothing is uncertain with one environment"
