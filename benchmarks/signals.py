"""How many turns must be sampled to the same held-out rate: plain groups, the curriculum, branches, and both?

    python benchmarks/signals.py [--seeds 10] [--target 0.7]
    python benchmarks/signals.py --runs DIR

The first trains a policy that is a table, in seconds, with our own samplers, estimator and weights of replies. A task
asks for six skills one after the other; a reply uses a skill rightly or in one of two wrong ways, and a wrong way
is seen as an error in two of three cases. The table holds a distribution for each skill, held-out tasks ask for other
sequences of the same skills. Each arm has the learning rate, of those in `RATES`, that is best for it on other seeds.
Prints, for each arm, the turns to the target beside those of plain groups of 8 of the same seed, with the 95% interval
of their ratio, and the share of groups with a signal. `tossed` are branches with leaves that are worth coin tosses.

The second reads learning runs of the smoke preset from folders named ARM-SEED (`python -m envs.swe learn --preset smoke
--seed SEED --run-dir DIR/ARM-SEED --env branches=1@every:1`): sampled tokens and held-out rates.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envs.delivery.estimators import Estimator
from envs.records.read import read_rollouts
from envs.records.stats import interval
from envs.swe.places import Branches
from envs.tasks.sampler import Sampler, SignalSampler, TaskSampler
from envs.types import Leaf, Reward, Task

SKILLS, DEPTH, WAYS = 48, 6, 3
TASKS, HELD_OUT = 96, 24
GROUPS, MOST = 4, 30_000
RATES, TUNED_ON = (512.0, 2048.0, 8192.0), range(1000, 1004)
SEEN = 2 / 3
"""How often a wrong way is seen as an error."""


@dataclass(frozen=True)
class Arm:
    """Settings of a training. branches: as `--env.branches`."""

    curriculum: bool = False
    branches: str = ""
    members: int = 8
    tossed: bool = False


BASE = "plain groups of 8"
ARMS = {
    BASE: Arm(),
    "plain groups of 4": Arm(members=4),
    "plain groups of 16": Arm(members=16),
    "curriculum": Arm(curriculum=True),
    **{f"2@{where}": Arm(branches=f"2@{where}") for where in ("errors", "entropy")},
    **{f"2@every:{turns}": Arm(branches=f"2@every:{turns}") for turns in range(1, 5)},
    "2@every:1, groups of 4": Arm(branches="2@every:1", members=4),
    "curriculum and 2@every:1": Arm(curriculum=True, branches="2@every:1"),
    "tossed 2@every:1": Arm(branches="2@every:1", tossed=True),
}


class Policy:
    """A distribution over ways for each skill; way 0 is right, and not likely at first."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.logits = [
            [rng.uniform(0.5, 2.0), *(rng.uniform(0.0, 0.8) for _ in range(WAYS - 1))] for _ in range(SKILLS)
        ]

    def chances(self, skill: int) -> list[float]:
        exps = [math.exp(one) for one in self.logits[skill]]
        return [one / sum(exps) for one in exps]

    def solves(self, skills: Sequence[int]) -> float:
        return math.prod(self.chances(skill)[0] for skill in skills)


@dataclass
class Made:
    """A rollout: its replies (skill, way), and its leaves as ways through them."""

    replies: list[tuple[int, int]] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def reward(self) -> Reward:
        ends = Reward(0.0, leaves=self.leaves).ends
        return Reward(math.fsum(value * weight for value, weight in ends), leaves=self.leaves)


def make(policy: Policy, skills: Sequence[int], arm: Arm) -> Made:
    """Make a rollout with its branches."""
    made, places = Made(), Branches.of(arm.branches)
    left = places.count if places else 0
    waiting: list[list[int]] = [[]]
    while waiting:
        way = waiting.pop()
        surprise = [-math.log(policy.chances(made.replies[one][0])[made.replies[one][1]]) for one in way]
        while len(way) < DEPTH:
            skill = skills[len(way)]
            chances = policy.chances(skill)
            chosen = policy.rng.choices(range(WAYS), chances)[0]
            way = [*way, len(made.replies)]
            made.replies.append((skill, chosen))
            surprise.append(-math.log(chances[chosen]))
            error = chosen != 0 and policy.rng.random() < SEEN
            risen = len(surprise) > 1 and surprise[-1] > statistics.fmean(surprise[:-1])
            if places and left and len(way) < DEPTH:
                every = len(way) % places.turns == 0
                if {"errors": error, "every": every, "entropy": risen}[places.where]:
                    left -= 1
                    waiting.append(way)
        right = all(made.replies[one][1] == 0 for one in way)
        worth = float(policy.rng.random() < 0.5) if arm.tossed else float(right)
        made.leaves.append(Leaf(worth, tuple(way)))
    return made


def learn_from(policy: Policy, group: Sequence[Made], step: list[list[float]]) -> bool:
    """Add a group's gradient to a step; tells whether it has a signal. The weights are those of docs/branches.md."""
    rewards = [one.reward for one in group]
    divisor = Estimator("group-mean").divisor([reward.ends for reward in rewards])
    mean = statistics.fmean(reward.value for reward in rewards)
    for made, reward in zip(group, rewards, strict=True) if divisor else ():
        for number, (skill, chosen) in enumerate(made.replies):
            behind, part = reward.behind(number)
            advantage = part * (behind - mean) / divisor / DEPTH
            for way, chance in enumerate(policy.chances(skill)):
                step[skill][way] += advantage * ((way == chosen) - chance) / (GROUPS * len(group))
    return bool(divisor)


def train(arm: Arm, speed: float, seed: int, target: float) -> tuple[int, float, float]:
    """Train until held-out tasks are solved so often. speed: the learning rate. Returns sampled turns, the share of
    groups with a signal, and the last held-out rate."""
    rng = random.Random(f"world {seed}")
    sequences = [[rng.randrange(SKILLS) for _ in range(DEPTH)] for _ in range(TASKS + HELD_OUT)]
    tasks = {f"{number}": sequence for number, sequence in enumerate(sequences[:TASKS])}
    policy = Policy(rng)
    known = [Task(name, name) for name in tasks]
    sampler: Sampler = (
        SignalSampler(known, seed=seed, group_size=arm.members) if arm.curriculum else TaskSampler(known, seed=seed)
    )
    sampled, signals, groups, rate = 0, 0, 0, 0.0
    while sampled < MOST:
        rate = statistics.fmean(policy.solves(sequence) for sequence in sequences[TASKS:])
        if rate >= target:
            break
        step = [[0.0] * WAYS for _ in range(SKILLS)]
        for _ in range(GROUPS):
            task = sampler.draw(groups, lambda _: True).task
            group = [make(policy, tasks[task.id], arm) for _ in range(arm.members)]
            ends = [end for one in group for end in one.reward.ends]
            sampler.note(task.id, *zip(*ends, strict=True))
            signals += learn_from(policy, group, step)
            sampled += sum(len(one.replies) for one in group)
            groups += 1
        for skill in range(SKILLS):
            for way in range(WAYS):
                policy.logits[skill][way] += speed * step[skill][way]
    return sampled, signals / max(1, groups), rate


def tuned(arm: Arm, target: float) -> float:
    """Return the learning rate of `RATES` with the fewest turns to the target."""
    if arm.tossed:
        return RATES[0]  # there is none
    turns = {rate: [train(arm, rate, seed, target)[0] for seed in TUNED_ON] for rate in RATES}
    return min(RATES, key=lambda rate: statistics.geometric_mean(turns[rate]))


def compare(seeds: int, target: float) -> None:
    """Print a line for each arm."""
    print(f"{'':26}turns to {target:.0%} held out, beside {BASE} (95% interval)   signal   rate  reached")
    plain: list[int] = []
    for name, arm in ARMS.items():
        speed = tuned(arm, target)
        found = [train(arm, speed, seed, target) for seed in range(seeds)]
        turns = [one[0] for one in found]
        plain = plain or turns
        ratios = interval([math.log(one / other) for one, other in zip(turns, plain, strict=True)])
        said = "" if ratios is None else f"({math.exp(ratios.low):.2f} to {math.exp(ratios.high):.2f})"
        ratio = math.exp(statistics.fmean(math.log(one / other) for one, other in zip(turns, plain, strict=True)))
        reached = sum(one[2] >= target for one in found)
        print(
            f"{name:26}{statistics.fmean(turns):8,.0f}  {ratio:5.2f} {said:18}"
            f"{statistics.fmean(one[1] for one in found):18.0%}   {speed:4.0f}  {reached} of {seeds}",
            flush=True,
        )


def read(runs: Path) -> None:
    """Print what learning runs have sampled, and their held-out rates."""
    for folder in sorted(runs.glob("*-*")):
        if not (folder / "environment").is_dir():
            continue
        made = list(read_rollouts(folder / "environment"))
        sampled = sum(len(one.ids) for rollout in made for one in rollout.result.record)
        leaves = sum(len(rollout.reward.ends) for rollout in made)
        rates = []
        for place in sorted(folder.glob("eval-*")):
            verdicts = [one.verdict.solved for one in read_rollouts(place)] if place.is_dir() else []
            rates.append(f"{statistics.fmean(verdicts):.0%} of {len(verdicts)}" if verdicts else "none")
        print(f"{folder.name:20}{sampled:9,} sampled tokens, {len(made)} rollouts, {leaves} leaves; held out {rates}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--target", type=float, default=0.7)
    parser.add_argument("--runs", type=Path)
    options = parser.parse_args()
    if options.runs is not None:
        read(options.runs)
    else:
        compare(options.seeds, options.target)


if __name__ == "__main__":
    main()
