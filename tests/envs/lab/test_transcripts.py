"""Transcripts of made-up tasks train the replies."""

from typing import Any

from atropos_agent.formats.hermes import Hermes
from atropos_agent.types import IGNORED
from envs.lab.kinds import KINDS
from envs.lab.synthetic import TOOLS, examples
from envs.lab.transcripts import transcripts


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
