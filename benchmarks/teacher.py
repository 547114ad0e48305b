"""How many sampled tokens does the smoke policy need with a teacher, and how many with the reward?

python benchmarks/teacher.py DIR --teacher STEP_FOLDER [--arms teacher,reward] [--seeds 5] [--rate 0.6]

STEP_FOLDER is a later checkpoint of `learn --preset smoke`, such as RUN/trainer/step-000024. Each run trains a fresh
smoke policy, with the real engine, trainer API, environment and trainer, in temporary directories instead of
containers, until it solves this share of the six held-out tasks, eight samples each. With the teacher, steps are of 4
rollouts, each a group of its own; with the reward, of one group of 8. Both are looked at after each 16 rollouts. DIR
gets a file for each run, and a later start makes the missing ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from atropos_agent.types import IGNORED
from envs.lab import smoke, trainer
from envs.lab.presets import PRESETS
from envs.running.commands import evaluate_once

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "envs"), str(TESTS / "envs/lab")]

from embedded_engine import engine  # type: ignore[import-not-found]  # noqa: E402 # below tests/, as the next two are
from lesson import environment, learn  # type: ignore[import-not-found]  # noqa: E402
from run_api import RunAPI  # type: ignore[import-not-found]  # noqa: E402

SMOKE = PRESETS["smoke"]
LOOK = 16
"""Rollouts between two looks at the held-out tasks."""
MOST = 112
ARMS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "teacher": (1, 4, {"teacher_weight": 1.0, "estimator": "none"}),
    "reward": (8, 1, {"estimator": "group-mean"}),
    "reward-4": (4, 2, {"estimator": "group-mean"}),
    "reward-32": (8, 4, {"estimator": "group-mean"}),
}
"""Size of a group, groups of a step, and options of the environment."""


def sampled_tokens(out: Path) -> int:
    """Return the tokens of all the rollouts that the trainer was given."""
    given = {name for step in _lines(out / "steps.jsonl") for name in step["rollout_ids"]}
    rollouts = (line["extra"]["atropos_agent"] for line in _lines(out / "environment/rollouts.jsonl"))
    masks = [row["masked_tokens"] for one in rollouts if one["id"] in given for row in one["segments"]]
    return sum(label != IGNORED for mask in masks for label in mask)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def one(folder: Path, arm: str, seed: int, rate: float, url: str, model: Path, teacher: str) -> list[list[float]]:
    """Train once. Returns for each look the sampled tokens and the share of solved tasks."""
    size, groups, more = ARMS[arm]
    more = {**more, "group_size": size, "seed": seed, **({"teacher": teacher} if arm == "teacher" else {})}
    options = [word for name, value in SMOKE.trainer.items() for word in (f"--{name}", str(value)) if word]
    options += ["--max-lag", str(SMOKE.max_lag), "--seed", str(seed), "--batch-size", str(size * groups)]
    api = RunAPI(folder / "run-api.log")
    await asyncio.to_thread(api.start)
    looks: list[list[float]] = []
    try:
        for done in range(LOOK, MOST + 1, max(LOOK, size * groups)):
            steps = str(max(done // (size * groups), 1))
            await learn(trainer, api.url, url, folder / "out", *options, "--steps", steps, **more)
            evaluating = {"eval_samples": 8, "eval_temperature": 1.0, "seed": seed}
            looking = await environment(folder / f"look-{done}", api.url, f"{url}/v1", model, **evaluating)
            solved = (await evaluate_once(looking)).reward
            assert solved is not None
            looks.append([sampled_tokens(folder / "out"), solved.mean])
            print(arm, seed, looks[-1], flush=True)
            if solved.mean >= rate:
                break
    finally:
        api.stop()
    return looks


async def measure(given: argparse.Namespace) -> None:
    model = smoke.model(DEFAULT_CACHE)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        shutil.copytree(given.teacher, folder, dirs_exist_ok=True)
        async with engine(str(model), 1024) as url, engine(folder, 2048) as teacher:
            for seed in range(1, given.seeds + 1):
                for arm in given.arms.split(","):
                    written = given.folder / f"{arm}-{seed}.json"
                    if written.exists():
                        continue
                    start = time.monotonic()
                    with tempfile.TemporaryDirectory() as work:
                        looks = await one(Path(work), arm, seed, given.rate, url, model, f"{teacher}/v1")
                    written.write_text(json.dumps(looks))
                    print(f"{arm}, seed {seed}: {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--arms", default="teacher,reward")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.6)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(measure(given))


if __name__ == "__main__":
    main()
