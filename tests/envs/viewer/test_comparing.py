"""Two runs task by task."""

from dataclasses import replace

import pytest
from shown_runs import evaluated, indexed, make_run

from envs.types import Reward, Verdict
from envs.viewer.comparing import compare_runs


async def test_rates_differences_and_intervals_are_those_of_the_rollouts(tmp_path):
    before = [evaluated(f"b-{task}-{n}", n < 1, f"task-{task}") for task in range(6) for n in range(4)]
    now = [evaluated(f"n-{task}-{n}", n < (4 if task else 1), f"task-{task}") for task in range(6) for n in range(4)]
    first = indexed(await make_run(tmp_path / "a", (), before))
    second = indexed(await make_run(tmp_path / "b", (), now))
    with first.reading() as one, second.reading() as other:
        found = compare_runs(one, other, evaluating=True)
        nothing = compare_runs(one, other, evaluating=False)
    assert found.overall.difference == pytest.approx(0.75 * 5 / 6)
    assert found.overall.interval.low < found.overall.difference < found.overall.interval.high
    assert [task.task for task in found.tasks][-1] == "task-0"
    best = found.tasks[0]
    assert (best.first.solved, best.second.solved, best.difference) == (1, 4, 0.75)
    assert not best.apart, "four samples each can't tell"
    assert nothing.overall is None
    assert not found.graded


async def test_rewards_between_0_and_1_are_compared_too(tmp_path):
    runs = [
        [replace(evaluated(name, False), verdict=Verdict(reward, "in part"), reward=Reward(reward))]
        for name, reward in (("b", 0.25), ("n", 0.75))
    ]
    first, second = [indexed(await make_run(tmp_path / one[0].id, (), one)) for one in runs]
    with first.reading() as one, second.reading() as other:
        found = compare_runs(one, other, evaluating=True)
    (task,) = found.tasks
    assert (task.difference, task.first.reward, task.second.reward, found.graded) == (0, 0.25, 0.75, True)
