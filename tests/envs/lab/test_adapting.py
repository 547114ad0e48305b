"""What an adapter is shown, and one that is made once."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from atropos_agent.cpu_engine.model import locate
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.hermes import CALL
from atropos_agent.gateway.requests import HistoryMessage
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED
from envs.agents.naming import FOREIGN
from envs.lab.adapting import make, make_training_rows
from envs.lab.kinds import EASY
from envs.lab.manner import _TASK, Manner
from envs.lab.recipes import RECIPES, Recipe
from envs.lab.synthetic import examples

BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
TINY = Recipe(examples=8, planned=1.0, decided=1.0, model="tiny")


async def test_most_plans_are_shown_but_few_that_one_should_plan(smollm2_tokenizer: Any) -> None:
    rows = await make_training_rows(replace(RECIPES["full"], examples=60), smollm2_tokenizer)
    trained = [smollm2_tokenizer.decode([token for token in row.masked_tokens if token != IGNORED]) for row in rows]
    decided = [text for text in trained if text.startswith("Plan: ")]
    begun = [text for text in trained if text.startswith(": ")]
    hasty = [text for text in trained if text.startswith(CALL)]
    assert len(decided) + len(begun) + len(hasty) == 60
    assert len(begun) > len(hasty) > 0.8 * len(decided) > 4
    assert [text.count("submit") for text in trained] == [int(place % 4 == 0) for place in range(60)]


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_is_made_once_with_its_progress_shown(tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(locate("tiny").parent)
    said = io.StringIO()
    path = make(TINY, tmp_path, Console(file=said, width=200))
    assert path == TINY.path(tmp_path) and path.stat().st_size > 1000
    assert "warm start: 8 of 8" in said.getvalue() and "loss" in said.getvalue()
    made = path.stat().st_mtime_ns
    assert make(TINY, tmp_path, Console(file=said, width=200)) == path
    assert path.stat().st_mtime_ns == made and "trained before" in said.getvalue()


async def test_one_transcript_in_so_many_is_told_whole(smollm2_tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = [HistoryMessage("user", f"Solve this: {_TASK}\nWith bash.")]
    manner = Manner(FOREIGN["mini-swe-agent"], opening, [BASH], [HistoryMessage("tool", "silence")])

    async def record(*_: object) -> Manner:
        return manner

    monkeypatch.setattr(Manner, "record", record)
    recipe = replace(TINY, agent="mini-swe-agent", kinds=EASY)
    tasks = examples(8, 0, EASY)
    for whole, told in ((4, [0, 4]), (1, [*range(8)])):
        rows = await make_training_rows(replace(recipe, whole=whole), smollm2_tokenizer)
        texts = [smollm2_tokenizer.decode(row.tokens) for row in rows]
        assert [place for place, text in enumerate(texts) if "With bash." in text] == told
        assert all(task.instruction in text for task, text in zip(tasks, texts, strict=True)), "in their order"


@pytest.mark.parametrize("tool_format", ["qwen_coder", "plain"])
async def test_transcripts_are_in_the_format_that_is_taught(smollm2_tokenizer: Any, tool_format: str) -> None:
    recipe = replace(TINY, examples=4, kinds=EASY, tool_format=tool_format)
    fitted = FittedFormat.of(tool_format, ChatTemplate(smollm2_tokenizer))
    for row, task in zip(await make_training_rows(recipe, smollm2_tokenizer), examples(4, 0, EASY), strict=True):
        first = next(place for place, label in enumerate(row.masked_tokens) if label != IGNORED)
        said = smollm2_tokenizer.decode(row.tokens[first:]).partition("<|im_end|>")[0]
        (call,) = fitted.read(said, first_id=0, thinking_open=False).calls
        assert (call.name, call.arguments) == ("terminal", {"command": task.command})
        assert CALL + "\n{" not in row.full_text, "nothing of Hermes"
