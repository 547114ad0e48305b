"""How often does a policy seem to learn that is trained on coin tosses, and how often one that is trained rightly?

python benchmarks/coin_tosses.py DIR [--runs 50] [--steps 17] [--right]

Each run trains a fresh smoke policy with the real engine, trainer API, environment and trainer, in temporary
directories instead of containers. Before the trainer reads a batch every score in it is replaced by a toss, so that
what the curve shows of rewards is the wandering of a policy that is pushed at random. --right leaves the scores. One
line for each run is added to DIR/tosses.jsonl (or right.jsonl), and a later start goes on after the last. Then both of
`envs.lab.curve.rise`'s chances are looked at after several numbers of steps of all runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from envs.lab import smoke, trainer
from envs.lab.curve import rise
from envs.lab.presets import PRESETS
from envs.records.stats import wilson

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "envs"), str(TESTS / "envs/lab")]

from embedded_engine import engine  # type: ignore[import-not-found]  # noqa: E402 # below tests/, as the next two are
from lesson import corrupted, learn  # type: ignore[import-not-found]  # noqa: E402
from run_api import RunAPI  # type: ignore[import-not-found]  # noqa: E402

SMOKE = PRESETS["smoke"]
LEVELS = (0.5, 0.2, 0.1, 0.05, 0.01)


def tossed(groups: Any) -> Any:
    """Return a batch whose scores are coin tosses."""
    return [{**group, "scores": [float(random.random() < 0.5) for _ in group["scores"]]} for group in groups]


async def one(folder: Path, steps: int, seed: int, right: bool) -> list[list[float]]:
    """Train once. Returns the rewards that the groups of each step really had."""
    options = [word for name, value in SMOKE.trainer.items() for word in (f"--{name}", str(value)) if word]
    options += ["--steps", str(steps), "--max-lag", str(SMOKE.max_lag), "--seed", str(seed)]
    api = RunAPI(folder / "run-api.log")
    await asyncio.to_thread(api.start)
    try:
        async with engine(str(smoke.model(DEFAULT_CACHE)), 1024) as url:
            with corrupted(trainer, None if right else tossed, None):
                done = await learn(trainer, api.url, url, folder / "out", *options, seed=seed)
    finally:
        api.stop()
    return [step["group_rewards"] for step in done]


def table(runs: Sequence[list[list[float]]], steps: int) -> None:
    """Print how often each chance was below some levels, after several numbers of steps."""
    for length in sorted({7, 10, 17, steps}):
        found = [rise([{"group_rewards": groups} for groups in run[:length]]) for run in runs if len(run) >= length]
        rises = [one for one in found if one is not None]
        if not rises:
            continue
        moved = [one.last - one.first for one in rises]
        print(f"\n{len(rises)} runs of {length} steps; from the first third to the last the reward moved by", end=" ")
        print(f"{min(moved):+.2f} to {max(moved):+.2f}")
        print(f"{'below':>12}  {'policy fixed':36}policy wandering")
        for level in LEVELS:
            cells = []
            for chances in ([one.p_value for one in rises], [one.p_wandering for one in rises]):
                below = sum(chance is not None and chance < level for chance in chances)
                low, high = wilson(below, len(rises))
                cells.append(f"{below / len(rises):.0%} (95% interval {low:.0%} to {high:.0%})")
            print(f"{level:>12}  {cells[0]:36}{cells[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--steps", type=int, default=17)
    parser.add_argument("--right", action="store_true", help="leave the scores as they are")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    written = given.folder / ("right.jsonl" if given.right else "tosses.jsonl")
    runs = [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []
    for seed in range(len(runs), given.runs):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            runs.append(asyncio.run(one(Path(folder), given.steps, seed, given.right)))
        with written.open("a") as file:
            file.write(json.dumps(runs[-1]) + "\n")
        print(f"run {seed}: {time.monotonic() - start:.0f} s", flush=True)
    table(runs, given.steps)


if __name__ == "__main__":
    main()
