"""Made-up tasks that can be solved, and transcripts that train the replies."""

from __future__ import annotations

import random
import re
from typing import Any

from atropos_agent.formats.hermes import Hermes
from atropos_agent.types import IGNORED
from envs.lab.kinds import KINDS
from envs.lab.synthetic import TOOLS, examples, hasty, transcripts
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


async def test_every_kinds_solution_runs_and_only_the_replies_are_trained(smollm2_tokenizer: Any) -> None:
    tasks = examples(len(KINDS), 1)
    rows = [row async for row in transcripts(tasks, smollm2_tokenizer)]
    for task, row in zip(tasks, rows, strict=True):
        trained = smollm2_tokenizer.decode([token for token in row.masked_tokens if token != IGNORED])
        first, second, rest = trained.split("<|im_end|>")
        (call,) = Hermes().parse(first).calls
        assert first.startswith(f"Plan: {task.plan}\n")
        assert (call.name, call.arguments) == (TOOLS[0], {"command": task.command})
        assert Hermes().parse(second).calls[0].name == "submit"
        assert rest == ""
        assert row.full_text.count(task.instruction) == 1
        assert "<tool_response>\n(no output)\n</tool_response>" in row.full_text


async def test_one_who_acts_at_once_says_nothing_and_is_mostly_wrong(smollm2_tokenizer: Any) -> None:
    rng = random.Random(0)
    tasks = examples(100, 2)
    replies = [hasty(task, rng)[0] for task in tasks]
    assert all(reply.content == "" for reply in replies)
    right = sum(r.calls[0].arguments["command"] == task.command for r, task in zip(replies, tasks, strict=True))
    assert 10 < right < 40
