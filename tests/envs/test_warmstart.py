"""The warm start: made-up tasks that can be solved, rows that train the replies, no starter task among them."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from atropos_agent.formats.hermes import CALL, Hermes
from atropos_agent.types import IGNORED
from envs.lab.kinds import KINDS
from envs.lab.synthetic import TOOLS, Example, examples, hasty, transcripts
from envs.lab.warm_start import SHIPPED, adapter, lessons
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


def test_no_starter_task_is_worded_as_a_made_up_one() -> None:
    starter = [task.instruction.strip() for task in load_tasks(STARTER) if "terminal" in task.tags]
    for wording in (wording for kind in KINDS for wording in kind.wordings):
        # A text may have blanks, what all other fields stand for has none.
        pattern = re.sub(r"\\{(\w+)\\}", lambda field: ".+" if field[1] == "text" else r"\S+", re.escape(wording))
        assert not [said for said in starter if re.fullmatch(pattern, said, re.IGNORECASE)], wording


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
    replies = [Hermes().parse(hasty(task, rng)[0]) for task in tasks]
    assert all(reply.content == "" for reply in replies)
    right = sum(r.calls[0].arguments["command"] == task.command for r, task in zip(replies, tasks, strict=True))
    assert 10 < right < 40


async def test_most_plans_are_shown_but_few_that_one_should_plan(smollm2_tokenizer: Any) -> None:
    rows = await lessons(120, 0, smollm2_tokenizer)
    trained = [smollm2_tokenizer.decode([token for token in row.masked_tokens if token != IGNORED]) for row in rows]
    decided = [text for text in trained if text.startswith("Plan: ")]
    begun = [text for text in trained if text.startswith(": ")]
    hasty = [text for text in trained if text.startswith(CALL)]
    assert len(decided) + len(begun) + len(hasty) == 120
    assert len(begun) > len(hasty) > 0.8 * len(decided) > 5
    assert [text.count("submit") for text in trained] == [int(place % 4 == 0) for place in range(120)]


def left(task: Example, command: str, place: Path) -> dict[str, str | None]:
    """What a command leaves of a task's files, directories as None, permissions with the text."""
    place.mkdir()
    for name, text in task.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    subprocess.run(["sh", "-c", command], cwd=place, capture_output=True, check=False)
    return {
        str(path.relative_to(place)): f"{path.stat().st_mode:o} {path.read_text()}" if path.is_file() else None
        for path in place.rglob("*")
    }


def test_no_slip_solves_its_task(tmp_path: Path) -> None:
    for number, task in enumerate(examples(4 * len(KINDS), 5)):
        wanted = left(task, task.command, tmp_path / f"{number}")
        assert wanted != left(task, "true", tmp_path / f"{number}-nothing"), task
        for slip in task.slips:
            assert left(task, slip, tmp_path / f"{number}-{task.slips.index(slip)}") != wanted, (task, slip)


@pytest.mark.skipif(not SHIPPED.is_file(), reason="not made yet")
def test_the_shipped_adapter_is_small_and_fits_smollm2() -> None:
    from safetensors import safe_open

    assert adapter() == SHIPPED
    assert SHIPPED.stat().st_size < 5_000_000
    with safe_open(SHIPPED, framework="pt") as file:
        rank = int(file.metadata()["r"])
        last = file.get_slice("base_model.model.model.layers.29.self_attn.q_proj.lora_A.weight")
        assert last.get_shape() == [rank, 576]
