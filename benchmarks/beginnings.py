"""Do groups that begin within an earlier rollout save turns? A policy that is a table, in a minute, with our estimator.

    python benchmarks/beginnings.py [--seeds 24] [--depth 6] [--target 0.7] [--step 0.4]

A task asks for `--depth` skills one after the other, and is solved if each reply uses its skill rightly. The table
holds for each skill a distribution over a right and two wrong ways; held-out tasks ask for other sequences of the
skills. Most groups (`SHARE`) begin after a random part of an earlier rollout of their task, which is not sampled again
and not trained. All steps of a training are of one length: `--step`, or for each arm that of `STEPS` that is best for
it on other seeds. Prints for each arm the sampled turns to the target beside those of plain groups of 8 of the same
seeds, as a geometric mean with its 95% interval.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from envs.delivery.estimators import Estimator
from envs.records.stats import interval
from envs.tasks.sampler import TaskSampler
from envs.types import Task

WAYS, GROUPS, MOST = 3, 4, 30_000
SHARE = 0.8
KEPT = 32
"""The last rollouts of a task from which one is drawn."""
STEPS, TUNED_ON = (0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6), range(1000, 1004)


@dataclass(frozen=True)
class Arm:
    """members: of a group. begin: within any earlier rollout, a solved one, or one of the task's last group if its
    rewards differed; "" for at the start."""

    members: int = 8
    begin: str = ""


BASE = "plain groups of 8"
ARMS = {
    BASE: Arm(),
    "plain groups of 4": Arm(4),
    "within any rollout": Arm(begin="any"),
    "within a solved rollout": Arm(begin="solved"),
    "within a solved one, groups of 4": Arm(4, "solved"),
    "within one of a group with a signal": Arm(begin="signal"),
}


@dataclass
class Policy:
    """The logits of each skill's ways; way 0 is right."""

    rng: random.Random
    skills: int
    logits: list[list[float]] = field(init=False)

    def __post_init__(self) -> None:
        uniform = self.rng.uniform
        self.logits = [[uniform(0.5, 2.0), uniform(0.0, 0.8), uniform(0.0, 0.8)] for _ in range(self.skills)]

    def chances(self, skill: int) -> list[float]:
        exps = [math.exp(one) for one in self.logits[skill]]
        return [one / sum(exps) for one in exps]

    def go_on(self, beginning: Sequence[int], sequence: Sequence[int]) -> list[int]:
        """Return the ways of a whole rollout."""
        rest = sequence[len(beginning) :]
        return [*beginning, *(self.rng.choices(range(WAYS), self.chances(skill))[0] for skill in rest)]


def beginning(arm: Arm, earlier: Sequence[tuple[list[int], bool]], rng: random.Random) -> list[int]:
    """Return the ways with which a group begins. earlier: rollouts of the task, and whether each solved it."""
    last = earlier[-arm.members :]
    known = {
        "": [],
        "any": earlier,
        "solved": [one for one in earlier if one[1]],
        "signal": last if len({solved for _, solved in last}) > 1 else [],
    }[arm.begin]
    if not known or rng.random() >= SHARE:
        return []
    ways = rng.choice(known)[0]
    return ways[: rng.randrange(1, len(ways))]


def train(arm: Arm, length: float, seed: int, options: argparse.Namespace) -> tuple[int, float, bool]:
    """Train in steps of this length until held-out tasks are solved so often. Returns sampled turns, the share of
    groups with a signal, and whether the target was reached."""
    rng, depth = random.Random(f"world {seed}"), options.depth
    sequences = [[rng.randrange(2 * depth) for _ in range(depth)] for _ in range(6 * depth)]
    held_out, known = sequences[: 4 * depth], sequences[4 * depth :]
    tasks, policy = [Task(f"{n}", "") for n in range(len(known))], Policy(rng, 2 * depth)
    sampler, estimator = TaskSampler(tasks, seed=seed), Estimator("group-mean")
    earlier: dict[str, list[tuple[list[int], bool]]] = defaultdict(list)
    sampled = signals = groups = 0
    while sampled < MOST:
        right = [policy.chances(skill)[0] for skill in range(2 * depth)]
        if statistics.fmean(math.prod(right[skill] for skill in one) for one in held_out) >= options.target:
            return sampled, signals / max(1, groups), True
        step = [[0.0] * WAYS for _ in range(2 * depth)]
        for _ in range(GROUPS):
            task = sampler.draw(groups).id
            begin, sequence = beginning(arm, earlier[task], rng), known[int(task)]
            made = [policy.go_on(begin, sequence) for _ in range(arm.members)]
            solved = [not any(ways) for ways in made]
            advantages = estimator.advantages([float(one) for one in solved])
            for ways, advantage in zip(made, advantages, strict=True):
                worth = advantage / (depth - len(begin))  # of each reply: a row's loss is a mean over its tokens
                for skill, chosen in list(zip(sequence, ways, strict=True))[len(begin) :]:
                    for way, chance in enumerate(policy.chances(skill)):
                        step[skill][way] += worth * ((way == chosen) - chance)
            earlier[task] = [*earlier[task], *zip(made, solved, strict=True)][-KEPT:]
            signals, groups = signals + any(advantages), groups + 1
            sampled += arm.members * (depth - len(begin))
        size = math.hypot(*(change for row in step for change in row)) or 1.0
        policy.logits = [
            [logit + length * change / size for logit, change in zip(*pair, strict=True)]
            for pair in zip(policy.logits, step, strict=True)
        ]
    return sampled, signals / groups, False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--depth", type=int, default=6, help="replies of a rollout")
    parser.add_argument("--target", type=float, default=0.7)
    parser.add_argument("--step", type=float, help="length of all steps")
    options = parser.parse_args()
    plain: list[int] = []
    print(f"{'':37}turns, beside {BASE} (95% interval)  signal  step  reached")
    for name, arm in ARMS.items():
        lengths = [options.step] if options.step else STEPS
        turns = [statistics.geometric_mean(train(arm, one, seed, options)[0] for seed in TUNED_ON) for one in lengths]
        length = lengths[turns.index(min(turns))]
        found = [train(arm, length, seed, options) for seed in range(options.seeds)]
        plain = plain or [one[0] for one in found]
        logs = [math.log(one[0] / other) for one, other in zip(found, plain, strict=True)]
        within = interval(logs)
        said = "" if within is None else f"({math.exp(within.low):.2f} to {math.exp(within.high):.2f})"
        print(
            f"{name:37}{statistics.fmean(one[0] for one in found):6,.0f}  {math.exp(statistics.fmean(logs)):4.2f} "
            f"{said:16}{statistics.fmean(one[1] for one in found):18.0%}  {length:4.1f}  "
            f"{sum(one[2] for one in found)} of {options.seeds}",
            flush=True,
        )


if __name__ == "__main__":
    main()
