"""Made-up tasks that can be solved."""

from __future__ import annotations

import random
import re
from typing import Any

from envs.lab.kinds import KINDS
from envs.lab.synthetic import examples, hasty_replies
from envs.swe import STARTER
from envs.tasks.harbor import load_tasks

FILE_NAME = re.compile(r"[\w-]+\.\w+")


def test_tasks_repeat_with_their_seed_and_take_the_kinds_by_turns() -> None:
    assert examples(40, 3) == examples(40, 3) != examples(40, 4)
    assert len({task.instruction for task in examples(200, 0)}) > 195
    assert [task.kind for task in examples(len(KINDS), 0)] == [kind.name for kind in KINDS]
    assert {task.kind for task in examples(8, 0, ["sort_file"])} == {"sort_file"}


def test_nothing_of_the_starter_pack_is_trained_on() -> None:
    starter = [task for task in load_tasks(STARTER) if "terminal" in task.tags]
    assert len(starter) > 20
    names = {name for task in starter for name in FILE_NAME.findall(task.instruction)}
    instructions = {task.instruction.strip().lower() for task in starter}
    for task in examples(500, 0):
        assert task.instruction.lower() not in instructions
        assert not names & set(FILE_NAME.findall(f"{task.instruction} {task.command}"))


async def test_one_who_acts_at_once_says_nothing_and_is_mostly_wrong(smollm2_tokenizer: Any) -> None:
    rng = random.Random(0)
    tasks = examples(100, 2)
    replies = [hasty_replies(task, rng)[0] for task in tasks]
    assert all(reply.content == "" for reply in replies)
    right = sum(r.calls[0].arguments["command"] == task.command for r, task in zip(replies, tasks, strict=True))
    assert 10 < right < 40
