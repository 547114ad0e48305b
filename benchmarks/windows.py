"""What is it worth to train summaries? The preset `windows` with trained ones, with masked ones and without compaction.

    python benchmarks/windows.py RUNS [--seeds 1 2 3] [--arms trained masked none pi_trained pi_masked] [--report]

Runs `learn` for each arm and seed into RUNS/ARM-SEED, where a later start goes on, and prints the shares of held-out
tasks solved before and after. The gains of trained over masked summaries are paired by task, in each seed and in the
mean of the seeds. Both begin with the same policy, so they share the first evaluation. Without compaction no rollout
has a reward, so one step is enough. `pi_` is pi in place of our own agent (`benchmarks/small_pi.py`).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from envs.lab.curve import Curve, Evaluation
from envs.records.stats import interval

_MASKED = ("--env", "trains_summaries=false")
_PI = ("--agent", str(Path(__file__).with_name("small_pi.py")))
ARMS = {
    "trained": (),
    "masked": _MASKED,
    "none": ("--env", "compaction=none", "--steps", "1"),
    "pi_trained": _PI,
    "pi_masked": (*_PI, *_MASKED),
}
_PAIRS = {"trained": "masked", "pi_trained": "pi_masked"}

FIRST = "eval-000000"
"""Folder of the evaluation before training."""


def learn(run_dir: Path, arm: str, seed: int) -> None:
    """Run one learning run to its end, unless it has come there."""
    first, shared = run_dir / FIRST, run_dir.parent / ("before_pi" if arm.startswith("pi_") else "before")
    if arm != "none" and shared.is_dir() and not first.exists():
        shutil.copytree(shared, first)
    command = ["-m", "envs.swe", "learn", "--preset", "windows", "--seed", str(seed), "--run-dir", str(run_dir)]
    subprocess.run([sys.executable, *command, *ARMS[arm]], check=True)
    if arm != "none" and not shared.exists():
        shutil.copytree(first, shared)


def evaluations(run_dir: Path) -> list[Evaluation]:
    """Return a run's evaluations, by their steps."""
    curve = Curve(run_dir)
    curve.read()
    return curve.evaluations


def summary(differences: list[float]) -> str:
    """Return a mean with its 95% interval, in points."""
    found = interval(differences)
    bounds = "no interval" if found is None else f"{100 * found.low:+.0f} to {100 * found.high:+.0f}"
    return f"{100 * statistics.fmean(differences):+.0f} points ({bounds}, n={len(differences)})"


def report(runs: Path) -> None:
    """Print what each run has come to, and what trained summaries gain."""
    last: dict[tuple[str, str], Mapping[str, float]] = {}
    for folder in sorted(runs.glob("*-*")):
        arm, _, seed = folder.name.partition("-")
        found = evaluations(folder)
        if len(found) > 1:
            last[arm, seed] = found[-1].rates
            rates = ", ".join(f"{statistics.fmean(one.rates.values()):.0%} of {one.samples}" for one in found)
            print(f"{folder.name:14}{rates}")
    for arm, other in _PAIRS.items():
        gains: dict[str, list[float]] = {}
        for seed in [seed for one, seed in last if one == arm and (other, seed) in last]:
            mine = {task: last[arm, seed][task] - rate for task, rate in last[other, seed].items()}
            print(f"{arm} over {other}, seed {seed}:", summary([*mine.values()]))
            for task, gain in mine.items():
                gains.setdefault(task, []).append(gain)
        if gains:
            print(f"{arm} over {other}, mean over seeds, by task:", summary([*map(statistics.fmean, gains.values())]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args()
    for seed in () if given.report else given.seeds:
        for arm in given.arms:
            learn(given.runs / f"{arm}-{seed}", arm, seed)
    report(given.runs)


if __name__ == "__main__":
    main()
