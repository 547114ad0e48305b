"""verifiers' server around an environment that adds numbers, and a client in the place of prime-rl's orchestrator: one
of the two is killed again and again.

python sums_with_verifiers.py ENGINE_URL FOLDER TOKENIZER KILLS

The client asks for as many episodes of each of six tasks, and asks again for one that did not come. It writes each into
its journal, as it would into its weights: an episode counts from there on. What takes long to import is imported once;
each life is a fork.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from forks import begin, end_of
from verifiers.v1.configs.client import TrainClientConfig
from verifiers.v1.serve.client import EnvClient
from verifiers.v1.serve.server import EnvServer
from verifiers.v1.types import SamplingConfig
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

TASKS, EPISODES_A_KILL, AT_ONCE, PATIENCE_S = 6, 2, 4, 20.0


def serve(config: Any, port: int) -> None:
    EnvServer.run_server(config=config, address=f"tcp://127.0.0.1:{port}")


async def train(port: int, engine: str, journal: Path, episodes: int) -> None:
    known = {tuple(json.loads(line)["seat"]) for line in _lines(journal)}
    left = [(task, number) for number in range(episodes) for task in range(TASKS) if (task, number) not in known]
    client, slots = EnvClient(f"tcp://127.0.0.1:{port}"), asyncio.Semaphore(AT_ONCE)
    told: dict[str, Any] = {"client": TrainClientConfig(base_url=engine, api_key_var="NONE"), "model": "scripted"}
    told["sampling"] = SamplingConfig(temperature=1.0)

    async def ask(task: int, number: int) -> None:
        data = {"name": f"sum-{task}", "prompt": f"What is {task} + {task}?"}
        async with slots:
            while True:
                try:
                    episode = await asyncio.wait_for(client.run(**told, task_data=data), PATIENCE_S)
                except TimeoutError:
                    continue  # the server was killed: its episode is lost, and never came
                if episode.ok:
                    break
                print("not ok:", episode.errors, flush=True)
        (trace,) = episode.traces
        line = {"seat": [task, number], "rollout": trace.info["rollout_id"], "rows": []}
        for branch in trace.branches:
            line["rows"].append([list(branch.token_ids), list(branch.sampled_mask), list(branch.logprobs)])
        with journal.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    try:
        await asyncio.gather(*(ask(*seat) for seat in left))
    finally:
        await client.close()


def _lines(journal: Path) -> list[str]:
    """Return the whole lines of a journal."""
    text = journal.read_text() if journal.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def cut(journal: Path) -> Path:
    """Cut off a line that a kill left half written."""
    journal.write_text("".join(line + "\n" for line in _lines(journal)))
    return journal


def main(engine: str, place: str, tokenizer: str, kills: int) -> int:
    folder, rng = Path(place), random.Random(kills)
    journal = folder / "journal"
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    options = [f"--env.tokenizer_name={tokenizer}", f"--env.run_dir={folder / 'runs'}"]
    config = resolve_env_config({"taskset": {"id": "atropos_vf", "environment": "sums:Sums", "options": options}})
    load_environment(config)  # for what it imports
    works = {
        "server": partial(serve, config, port),
        "client": lambda: asyncio.run(train(port, engine, cut(journal), EPISODES_A_KILL * kills)),
    }
    lives = {name: begin(work) for name, work in works.items()}
    for _ in range(kills):
        # Two more of the twelve episodes that there are for a kill, so that the end is not reached before the last one.
        wanted = len(_lines(journal)) + rng.randint(1, 2)
        while len(_lines(journal)) < wanted:
            time.sleep(0.05)
        time.sleep(0.3 * rng.random())
        name = rng.choice(("server", "client"))
        os.kill(lives[name], signal.SIGKILL)
        ended = end_of(lives[name])
        print("the", name, "ended with", ended, "at episode", len(_lines(journal)), flush=True)
        lives[name] = begin(works[name])
    status = end_of(lives["client"])
    os.kill(lives["server"], signal.SIGKILL)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], int(sys.argv[4])))
