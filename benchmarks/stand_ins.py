"""What a rollout costs the driver: stand-in rollouts, made in its own process and in Ray actors.

A part of `scale.py --stand-in`. A stand-in says eight turns of 90 tokens, which are journalled, waits between them, and
comes back as a judged rollout of some 3,000 tokens: what a real one is to the driver, without inference server and
sandbox.
"""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import orjson
from aiohttp import web

from atropos_agent.types import IGNORED, NO_LOGPROB, AgentResult, AgentStep, Exchange, SequenceData, StopReason
from envs.base import AgentEnv
from envs.config import AgentEnvConfig, RayOptions
from envs.options import EngineConfig
from envs.running.commands import CountPace
from envs.running.run import open_run
from envs.running.sinks import FileSink, open_group_file
from envs.types import Outcome, Seat, Task, Verdict

TURNS, REPLY, ADDED = 8, 90, 280
"""Turns of a rollout, tokens of a reply, and of what comes before it."""
SECONDS = 24.0
"""How long a rollout takes."""
WORKERS = 2


class StandIn(AgentEnv):
    """Rollouts that are none."""

    name: ClassVar[str] = "stand-in"

    @classmethod
    def load_tasks(cls, config: AgentEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        tasks = [Task(f"task-{n}", f"Find out what is wrong with part {n}, step by step.") for n in range(64)]
        return tasks, tasks[:1]

    async def setup(self, resources: AsyncExitStack) -> None:
        self.random = random.Random(0)

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        record = []
        recording = cast(Any, seat.recording)  # of whichever kind of worker
        await asyncio.sleep(SECONDS / TURNS * self.random.random())
        for turn in range(TURNS):
            given = [self.random.randrange(1000, 40000) for _ in range(ADDED)]
            ids = [self.random.randrange(1000, 40000) for _ in range(REPLY)]
            logprobs = [-self.random.random() for _ in ids]
            body = {"key": f"{turn:032}", "added": given, "ids": ids, "logprobs": logprobs, "reason": "stop"}
            recording.journal(orjson.dumps(body))
            record.append(Exchange(turn > 0, given, ids, logprobs))
            await asyncio.sleep(SECONDS / TURNS)
        return Outcome(result_of(record), Verdict(float((seat.member or 0) % 2), "by its number"))


def result_of(record: Sequence[Exchange]) -> AgentResult:
    """What an agent returns after these requests."""
    tokens, masked, logprobs, steps = [], [], [], []
    for index, one in enumerate(record):
        tokens += [*one.given, *one.ids]
        masked += [*[IGNORED] * len(one.given), *one.ids]
        logprobs += [*[NO_LOGPROB] * len(one.given), *one.logprobs]
        start, text = len(tokens) - len(one.ids), "word " * len(one.ids)
        steps.append(
            AgentStep(index, text, start=start, completion_tokens=len(one.ids), prompt_tokens=start, content=text)
        )
    messages = [{"role": "user", "content": "word " * ADDED}, {"role": "assistant", "content": "word " * REPLY}] * TURNS
    row = SequenceData("word " * len(tokens), tokens, masked, logprobs, turns=len(record))
    return AgentResult(True, "done", steps, StopReason.ANSWERED, [row], messages, record=record)


async def measure(
    rollouts: int, workers: Literal["process", "ray"], address: str, tokenizer: str, folder: Path
) -> dict[str, Any]:
    """Make so many rollouts at once. Returns what they cost this process."""
    config = AgentEnvConfig(
        group_size=8,
        max_num_workers=-(-rollouts // 8),
        max_concurrent_rollouts=rollouts,
        max_token_length=32768,
        tokenizer_name=tokenizer,
        run_dir=folder / f"{workers}-{rollouts}",
        total_steps=rollouts // 8,
        workers=workers,
        ray=RayOptions(address=address or "auto", rollouts=rollouts) if workers == "ray" else RayOptions(),
    )
    async with models() as url, open_run(StandIn(config, [EngineConfig(base_url=url, model_name="none")])) as run:
        if workers == "ray":
            members = cast(Any, run.rollouts)._worker._members
            while True:
                if sum(member.live is not None for member in members.values()) == WORKERS:
                    break
                await asyncio.sleep(0.1)
        run.rollouts.limiter.climb.limit = rollouts
        file = await open_group_file(run, folder / f"{workers}-{rollouts}.jsonl")
        at_once, before = 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, cpu = time.monotonic(), time.process_time()

        async def look() -> None:
            nonlocal at_once
            while True:
                at_once = max(at_once, run.rollouts.limiter.active)
                await asyncio.sleep(0.2)

        looking = asyncio.create_task(look())
        await run.make_groups(CountPace(run, config.total_steps), FileSink(run, file))
        looking.cancel()
        made, seconds, used = run.metrics.rollouts, time.monotonic() - began, time.process_time() - cpu
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "workers": workers,
        "rollouts": rollouts,
        "made": made,
        "at_once": at_once,
        "failures": sum(run.metrics.failures.values()),
        "cpu_ms": 1000 * used / made,
        "grown_kb": grown / rollouts,
        "seconds": seconds,
        "blocks": run.watch.blocks,
        "longest_ms": 1000 * run.watch.longest_s,
    }


@asynccontextmanager
async def models() -> AsyncIterator[str]:
    """Answer what workers ask an inference server when they begin; yields its address."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "none", "root": "none", "max_model_len": 32768}]})

    app = web.Application()
    app.add_routes([web.get("/v1/models", answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@contextmanager
def cluster() -> Iterator[str]:
    """Start a Ray cluster of a head and two nodes on this machine; yields its address."""
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80_000_000}
    found = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small})
    for _ in range(WORKERS):
        found.add_node(num_cpus=1, **small)
    try:
        yield found.address
    finally:
        ray.shutdown()
        found.shutdown()


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return the figures as Markdown."""
    head = "| rollouts at once | in | driver's CPU ms, a rollout | its kB, a rollout | made / failures | seconds |"
    rows = [
        f"| {one['at_once']} | {'one process' if one['workers'] == 'process' else f'{WORKERS} Ray actors'} | "
        f"{one['cpu_ms']:.1f} | {one['grown_kb']:.0f} | {one['made']} / {one['failures']} | {one['seconds']:.0f} |"
        for one in found
    ]
    return "\n".join([head, "|---:|---|---:|---:|---:|---:|", *rows])
