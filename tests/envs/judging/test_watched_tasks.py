"""Which tasks are watched, and which of them a run uses."""

from dataclasses import replace

import pytest
from task_formats import write

from envs.judging.watched_tasks import files_of, is_watched, select, speak_of_runners
from envs.types import BadTask, Hidden, Step, Task


def task(root, name, script, watched=None):
    return Task(name, "Do it.", Hidden(write(root / name, {"test.sh": script}), watched=watched))


@pytest.mark.parametrize(
    "text, speaks",
    [
        (b"python3 -m pytest /tests", True),
        (b"py.test", True),
        (b"import os, unittest", True),
        (b"from unittest import TestCase", True),
        (b'[python, "-m", "unittest"]', True),
        (b"cp /tests/unittest.cpp tests/ && make unittest", False),
        (b"from unittest import mock", False),
        (b"import unittest.mock", False),
        (b"cmp out.txt /tests/expected.txt", False),
    ],
)
def test_files_speak_of_runners(text, speaks):
    assert speak_of_runners([("empty", b""), ("a", text)]) is speaks
    assert speak_of_runners([("tests.json", b""), ("a", text)])


def test_what_the_check_saw_comes_before_what_the_files_speak_of(tmp_path):
    assert is_watched(task(tmp_path, "a", "pytest"))
    assert not is_watched(task(tmp_path, "b", "pytest", watched=False))
    assert not is_watched(task(tmp_path, "c", "cmp a b"))
    assert is_watched(task(tmp_path, "d", "cmp a b", watched=True))


@pytest.mark.parametrize(
    "files", [{"tests.json": "{}"}, {"lists/tests.json": "{}"}, {"data": "pytest" + " " * (5 << 20)}, {"a/b": "pytest"}]
)
def test_a_run_and_its_judge_see_the_same_in_files(tmp_path, files):
    folder = write(tmp_path, files)
    assert is_watched(Task("a", "", Hidden(folder))) is speak_of_runners(files_of([folder], 2**26))


def test_a_task_of_steps_is_watched_where_each_step_is(tmp_path):
    one, other = task(tmp_path, "a", "pytest"), task(tmp_path, "b", "cmp a b")
    steps = [Step(step.id, "", step.hidden) for step in (one, other)]
    assert is_watched(replace(one, steps=steps[:1]))
    assert not is_watched(replace(one, steps=steps))


def test_unwatched_tasks_are_named_or_left_out(tmp_path, caplog):
    tasks = [task(tmp_path, "good", "pytest"), task(tmp_path, "other", "cmp a b")]
    assert select(tasks, "use") == tasks
    assert "1 of 2 tasks unwatched" in caplog.text and "other" in caplog.text
    assert select(tasks, "refuse") == tasks[:1]
    with pytest.raises(BadTask, match=r"--env\.unwatched refuse: 1 of 1 task unwatched"):
        select(tasks[1:], "refuse")


def test_tasks_that_are_judged_in_place_are_named_or_left_out(tmp_path, caplog):
    good, placed = (task(tmp_path, name, "pytest") for name in ("good", "placed"))
    tasks = [good, replace(placed, hidden=replace(placed.hidden, in_place=True))]
    assert select(tasks, "use") == tasks
    assert "1 of 2 tasks judged in place (docs/reward.md): placed" in caplog.text
    assert select(tasks, "refuse") == tasks[:1]
