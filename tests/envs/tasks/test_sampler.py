"""The order of tasks."""

from envs.tasks.sampler import TaskSampler
from envs.types import Task

TASKS = [Task(f"t{n}", "") for n in range(7)]


def test_each_epoch_has_every_task_once_and_the_order_is_the_same_on_every_start():
    order = [TaskSampler(TASKS, seed=3).draw(n).id for n in range(21)]
    assert [TaskSampler(TASKS, seed=3).draw(n).id for n in reversed(range(21))] == order[::-1]
    for epoch in range(3):
        assert sorted(order[7 * epoch : 7 * epoch + 7]) == [task.id for task in TASKS]
    assert order[:7] != order[7:14]
