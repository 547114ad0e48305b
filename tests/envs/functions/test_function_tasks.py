"""Tasks as scripts have them."""

from pathlib import Path

import pytest

from envs.functions.tasks import read_tasks
from envs.types import BadTask, Task


def test_texts_mappings_and_tasks_become_tasks():
    given = [
        "Do it.",
        {"instruction": "Add.", "answer": 4},
        {"id": 7, "instruction": "x", "tags": ["a"]},
        Task("t", "y"),
    ]
    first, second, third, last = read_tasks(lambda: iter(given))
    assert (first.id, first.instruction) == ("task-0", "Do it.")
    assert (second.id, second.metadata) == ("task-1", {"answer": 4})
    assert (third.id, third.tags, last) == ("7", ["a"], Task("t", "y"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "there are no tasks"),
        ([{"instruction": None}], r"tasks\[0\].instruction: None is no text"),
        ([{"question": "?", "answer": 4}], r"tasks\[0\] has no instruction, but question, answer"),
        ("tasks.parquet", "the tasks are 'tasks.parquet', which holds none; give a list"),
        (Path("tasks.parquet"), "which holds none; give a list"),
        (lambda: None, "the tasks are None"),
        ({"train": ["Add."], "test": []}, "the tasks are a dict with train, test; give one of its entries"),
        ([{"id": "\ud83d", "instruction": "x"}], r"tasks\[0\].id: .*half of a surrogate pair"),
        ([3], r"tasks\[0\] is a int"),
        ([Task("a", "x"), Task("a", "y")], "1 id of several tasks, such as 'a'; give each its own"),
    ],
)
def test_what_is_no_task_is_named(given, said):
    with pytest.raises(BadTask, match=said):
        read_tasks(given)
