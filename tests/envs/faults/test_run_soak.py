"""A long run with random faults everywhere: every rollout is accounted for, and nothing grows.

pytest -m slow -p no:logging tests/envs/faults/test_run_soak.py -s
"""

import asyncio
import gc
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from proxy import FAULTS, Proxy
from scripted_engine import ScriptedEngine
from sums import metrics_of, right
from test_sender import Run, check_accounts, states

from envs.base import AgentEnv
from envs.config import AgentEnvConfig
from envs.lab.consumer import Consumer
from envs.options import EngineConfig
from envs.types import InfraError, Outcome, Task, Verdict
from sandboxes.base import SandboxDied, SandboxSpec
from sandboxes.local import LocalBackend
from tools import ToolRegistry, calculator

ROLLOUTS = int(os.environ.get("SOAK_ROLLOUTS", "5000"))
SHARE = 0.05


class Chaos(AgentEnv):
    """Sums in local sandboxes, of which one in twenty dies, is not judged, or is cancelled."""

    name = "chaos"

    @classmethod
    def load_tasks(cls, config):
        tasks = [Task(f"sum-{n}", f"What is {n} + {n}?") for n in range(200)]
        return tasks, tasks[:3]

    async def setup(self, resources):
        self.backend = await resources.enter_async_context(LocalBackend())
        self.rng = random.Random(1)
        self.planted = Counter()

    async def attempt(self, task, seat):
        fault = self.rng.choice(["died", "verifier", "cancelled", "bug"]) if self.rng.random() < SHARE else None
        self.planted[fault] += 1
        async with self.backend.open(SandboxSpec("local")) as sandbox:
            result = await self.agent(seat, ToolRegistry([calculator])).run(task.instruction)
            await sandbox.write_file("answer", result.final_response.encode())
            match fault:
                case "died":
                    raise SandboxDied("the sandbox is gone")
                case "verifier":
                    raise InfraError("verifier", "the verifier crashed")
                case "cancelled":
                    asyncio.current_task().cancel()
                    await asyncio.sleep(0)
                case "bug":
                    raise ZeroDivisionError("a bug in the environment")
            answer = (await sandbox.read_file("answer")).decode().strip()
        return Outcome(result, Verdict(float(answer == str(2 * int(task.id.split("-")[1]))), "compared"))


def footprint():
    """Resident memory in MB and open descriptors."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_five_thousand_rollouts_with_random_faults_are_all_accounted_for(
    smollm2_tokenizer, tokenizer_folder, tmp_path, run_api
):
    groups, rng = ROLLOUTS // 4, random.Random(2)
    faults = [*(fault for fault in FAULTS if fault not in ("hang", "slow")), 500, 503, 429]

    async def plan(*proxies):
        while True:
            for proxy in proxies:
                usable = [fault for fault in faults if fault != "wrong ids" or proxy.only == b"/v1/completions"]
                proxy.plan.extend(
                    rng.choice(usable) if rng.random() < SHARE else None for _ in range(50 - len(proxy.plan))
                )
            await asyncio.sleep(0.05)

    with ScriptedEngine(right, smollm2_tokenizer) as engine:
        async with (
            Proxy(engine.url) as to_engine,
            Proxy(run_api.url) as to_api,
            Consumer(run_api.url, batch_size=8, poll_s=0.05) as consumer,
        ):
            to_engine.only, to_api.only = b"/v1/completions", b"/scored_data"
            planning = asyncio.create_task(plan(to_engine, to_api))
            config = AgentEnvConfig(
                group_size=4,
                tokenizer_name=tokenizer_folder,
                run_dir=tmp_path / "run",
                rollout_server_url=to_api.url,
                ensure_scores_are_not_same=False,
                max_batches_offpolicy=8,
                total_steps=10**6,
            )
            env = Chaos(config, [EngineConfig(base_url=to_engine.url, model_name="scripted")])
            started, figures = time.monotonic(), []
            async with Run(env, consumer) as run:
                for part in range(1, 11):
                    async with asyncio.timeout(1200):
                        while run.numbers.total() < groups * part // 10:
                            for task in (run._serving, run._pulling):
                                if task.done():
                                    task.result()
                            await asyncio.sleep(0.2)
                    figures.append((run.numbers.total(), *footprint()))
                    print(f"{time.monotonic() - started:5.0f} s  %4d groups  %5.0f MB  %3d descriptors" % figures[-1])
            planning.cancel()
    await check_accounts(run)
    counts, metrics = await states(env), metrics_of(env)
    print(f"states {dict(counts)}\nfailures {dict(metrics.failures)}\nplanted {dict(env.planted)}")
    assert counts["delivered"] >= groups
    assert set(counts) <= {"delivered", "working", "outbox"}, "every group was delivered or is in work"
    assert metrics.solved == metrics.rollouts, "no rollout was scored 0 by an infrastructure failure"
    (_, half, descriptors), (_, end, descriptors_at_end) = figures[4], figures[-1]
    assert end - half < 60, "memory is flat over the second half"
    assert descriptors_at_end - descriptors < 20
