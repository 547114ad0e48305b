"""The order of tasks."""

import random
from collections import Counter

import pytest

from envs.tasks.sampler import SignalSampler, TaskSampler, chance_of_signal
from envs.types import Task

TASKS = [Task(f"t{n}", "") for n in range(7)]


def test_each_epoch_has_every_task_once_and_the_order_is_the_same_on_every_start():
    order = [TaskSampler(TASKS, seed=3).draw(n).task.id for n in range(21)]
    assert [TaskSampler(TASKS, seed=3).draw(n).task.id for n in reversed(range(21))] == order[::-1]
    for epoch in range(3):
        assert sorted(order[7 * epoch : 7 * epoch + 7]) == [task.id for task in TASKS]
    assert order[:7] != order[7:14]


def test_the_chance_that_rewards_differ_follows_from_the_rewards_seen():
    assert chance_of_signal({}, 1) == pytest.approx(0), "one rollout differs from none"
    unknown, always, half = (chance_of_signal(counts, 8) for counts in ({}, {1.0: 16}, {0.0: 8, 1.0: 8}))
    assert always < 0.25 < unknown < 0.75 < half
    assert chance_of_signal({0.5: 16}, 8) < unknown, "a reward that is always the same teaches nothing, whatever it is"
    assert chance_of_signal({n / 16: 1 for n in range(16)}, 8) > half


def test_the_chance_is_the_share_of_groups_that_differ_where_tasks_are_as_the_prior_says():
    rng = random.Random(5)
    solved = [[rng.random() < rate for _ in range(4)] for rate in (rng.betavariate(0.5, 0.5) for _ in range(20_000))]
    differ = sum(len(set(group)) > 1 for group in solved) / len(solved)
    assert chance_of_signal({}, 4) == pytest.approx(differ, abs=0.015)


def test_tasks_that_teach_are_drawn_more_often_and_the_others_come_back():
    sampler = SignalSampler(TASKS, seed=3, group_size=4)
    for _ in range(3):
        for task in TASKS:
            sampler.note(task.id, [0, 1, 0, 1] if task.id in ("t1", "t2") else [1, 1, 1, 1])
    drawn = Counter(sampler.draw(number).task.id for number in range(2000))
    assert drawn["t1"] + drawn["t2"] > 1600
    assert min(drawn.values()) >= 10
    assert set(drawn) == {task.id for task in TASKS}


def test_old_rewards_fade():
    sampler = SignalSampler(TASKS[:2], seed=0, group_size=4)
    for _ in range(20):
        sampler.note("t0", [0, 0, 0, 0])
    for _ in range(4):
        sampler.note("t0", [0, 1, 0, 1])
        sampler.note("t1", [1, 1, 1, 1])
    drawn = Counter(sampler.draw(number).task.id for number in range(500))
    assert drawn["t0"] > 350


def test_a_draw_is_the_same_on_every_start_and_says_why():
    earlier = [("t1", [0.0, 1.0]), ("gone", [1.0, 1.0]), ("t2", [1.0, 1.0])]
    one, other = (SignalSampler(TASKS, seed=7, group_size=2, earlier=earlier) for _ in range(2))
    assert [one.draw(n) for n in range(30)] == [other.draw(n) for n in range(30)]
    assert all(one.draw(n).reason for n in range(30, 50))
    reasons = {one.draw(n).reason for n in range(200) if one.draw(n).task.id == "t1"}
    assert any("last mean 0.50" in reason for reason in reasons)
    before = one.draw(300)
    one.note("t3", [0.0, 1.0])
    assert one.draw(300) is before, "it was announced, and stays"


def test_unusable_tasks_are_not_drawn():
    sampler = SignalSampler(TASKS, seed=1, group_size=2)
    first = sampler.draw(0).task
    again = [sampler.draw(n, lambda task: task is not first).task for n in range(200)]
    assert first not in again
    assert sampler.draw(500, lambda _: False).task in TASKS, "the queue says that none is left"
