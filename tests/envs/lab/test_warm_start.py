"""The warm start: what it shows, and an adapter that is made once."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from embedded_engine import engine
from rich.console import Console

from atropos_agent.cpu_engine.model import locate
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.hermes import CALL
from atropos_agent.gateway.requests import HistoryMessage
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED
from envs.agents.naming import FOREIGN
from envs.lab import warm_start
from envs.lab.manner import _TASK, Manner
from envs.lab.parts import output_of
from envs.lab.synthetic import examples
from envs.lab.warm_start import CACHE, EASY, RECIPES, Recipe, adapter, find, lessons, main, make
from envs.swe import STARTER
from envs.tasks.harbor import load_tasks

BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
TINY = Recipe(examples=8, planned=1.0, decided=1.0, model="tiny")


@pytest.mark.long(10)
async def test_most_plans_are_shown_but_few_that_one_should_plan(smollm2_tokenizer: Any) -> None:
    rows = await lessons(replace(RECIPES["full"], examples=120), smollm2_tokenizer)
    trained = [smollm2_tokenizer.decode([token for token in row.masked_tokens if token != IGNORED]) for row in rows]
    decided = [text for text in trained if text.startswith("Plan: ")]
    begun = [text for text in trained if text.startswith(": ")]
    hasty = [text for text in trained if text.startswith(CALL)]
    assert len(decided) + len(begun) + len(hasty) == 120
    assert len(begun) > len(hasty) > 0.8 * len(decided) > 5
    assert [text.count("submit") for text in trained] == [int(place % 4 == 0) for place in range(120)]


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.long(15)
def test_an_adapter_is_made_once_with_its_progress_shown(tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(locate("tiny").parent)
    said = io.StringIO()
    path = make(TINY, tmp_path, Console(file=said, width=200))
    assert path == TINY.path(tmp_path) and path.stat().st_size > 1000
    assert "warm start: 8 of 8" in said.getvalue() and "loss" in said.getvalue()
    made = path.stat().st_mtime_ns
    assert make(TINY, tmp_path, Console(file=said, width=200)) == path
    assert path.stat().st_mtime_ns == made and "trained before" in said.getvalue()


def test_another_recipe_is_another_adapter() -> None:
    others = [replace(TINY, examples=9), replace(TINY, planned=0.5), replace(TINY, seed=1), replace(TINY, revision=2)]
    assert len({recipe.digest for recipe in (TINY, replace(TINY), *others)}) == 5


def test_adapters_keep_their_names_and_the_one_of_another_training_has_another() -> None:
    assert {name: RECIPES[name].digest for name in ("quick", "full")} == {
        "quick": "6b99013d0992",
        "full": "0000d01d17e2",
    }
    through = [replace(RECIPES["few"], agent="mini-swe-agent")]
    through += [replace(through[0], whole=1), replace(through[0], autocast=False), replace(through[0], examples=120)]
    through += [replace(through[0], whole=1, autocast=False, revision=1, examples=120)]
    assert len({recipe.digest for recipe in through}) == 5
    assert all(recipe.digest.startswith("mini-swe-agent-") for recipe in through)
    assert replace(RECIPES["full"], agent="atropos").path() == RECIPES["full"].path()


async def test_one_transcript_in_so_many_is_told_whole(smollm2_tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = [HistoryMessage("user", f"Solve this: {_TASK}\nWith bash.")]
    manner = Manner(FOREIGN["mini-swe-agent"], opening, [BASH], [HistoryMessage("tool", "silence")])

    async def heard(*_: object) -> Manner:
        return manner

    monkeypatch.setattr(Manner, "heard", heard)
    recipe = replace(TINY, agent="mini-swe-agent", kinds=EASY)
    tasks = examples(8, 0, EASY)
    for whole, told in ((4, [0, 4]), (1, [*range(8)])):
        rows = await lessons(replace(recipe, whole=whole), smollm2_tokenizer)
        texts = [smollm2_tokenizer.decode(row.tokens) for row in rows]
        assert [place for place, text in enumerate(texts) if "With bash." in text] == told
        assert all(task.instruction in text for task, text in zip(tasks, texts, strict=True)), "in their order"


async def test_an_adapter_of_ones_own_is_taken_before_any_other(tmp_path: Path) -> None:
    own = tmp_path / "mine.safetensors"
    with pytest.raises(FileNotFoundError, match=r"mine\.safetensors: there is no such file"):
        await adapter("quick", given=own)
    own.write_bytes(b"")
    assert await adapter("quick", given=own) == own
    assert await adapter("quick", given=tmp_path) == tmp_path, "PEFT saves a folder"


def test_what_was_made_before_is_found_the_full_one_first(tmp_path: Path) -> None:
    assert find("quick", cache=tmp_path) is find("full", cache=tmp_path) is None
    quick, full = (RECIPES[name].path(tmp_path) for name in ("quick", "full"))
    quick.parent.mkdir()
    quick.write_bytes(b"")
    assert find("quick", cache=tmp_path) == quick
    assert find("full", cache=tmp_path) is None
    full.write_bytes(b"")
    assert find("quick", cache=tmp_path) == find("full", cache=tmp_path) == full


async def test_where_there_is_none_the_command_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    async def output_of(_: str, *arguments: str, log: Path | None) -> str:
        asked.append(arguments)
        return str(tmp_path / "made")

    monkeypatch.setattr(warm_start, "output_of", output_of)
    assert await adapter("quick", cache=tmp_path) == tmp_path / "made"
    (arguments,) = asked
    assert arguments[:4] == ("-m", "envs.lab.warm_start", "--recipe", "quick")
    RECIPES["quick"].path(tmp_path).parent.mkdir()
    RECIPES["quick"].path(tmp_path).write_bytes(b"")
    assert main([*arguments[2:], "--out", str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy").is_file()


def test_the_quick_recipe_is_good_for_kinds_of_which_the_starter_pack_has_tasks() -> None:
    assert RECIPES["quick"].kinds == EASY
    tags = [tag for task in load_tasks(STARTER) for tag in task.tags]
    assert all(tag in tags for tag in EASY)
    assert sum(tag in EASY for tag in tags) >= 8


@pytest.mark.parametrize("tool_format", ["qwen_coder", "plain"])
async def test_transcripts_are_in_the_format_that_is_taught(smollm2_tokenizer: Any, tool_format: str) -> None:
    recipe = replace(TINY, examples=4, kinds=EASY, tool_format=tool_format)
    fitted = FittedFormat.of(tool_format, ChatTemplate(smollm2_tokenizer))
    for row, task in zip(await lessons(recipe, smollm2_tokenizer), examples(4, 0, EASY), strict=True):
        first = next(place for place, label in enumerate(row.masked_tokens) if label != IGNORED)
        said = smollm2_tokenizer.decode(row.tokens[first:]).partition("<|im_end|>")[0]
        (call,) = fitted.read(said, first_id=0, thinking_open=False).calls
        assert (call.name, call.arguments) == ("terminal", {"command": task.command})
        assert CALL + "\n{" not in row.full_text, "nothing of Hermes"


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.docker
@pytest.mark.timeout(1800)
# peft 0.21 asks transformers 5 by a name that the latter renames in version 6.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("tool_format", ["qwen_coder", "plain"])
async def test_a_small_model_solves_tasks_in_formats_other_than_hermes(
    tmp_path: Path, base_image: str, tool_format: str
) -> None:
    made = await asyncio.to_thread(make, replace(RECIPES["quick"], tool_format=tool_format), CACHE, Console())
    async with engine("smollm2", 2048, "--adapter", str(made)) as url:
        options = [f"--openai.base_url={url}", f"--env.tool_format={tool_format}", "--env.max_token_length=2048"]
        printed = await output_of("doctor", "-m", "envs.swe", "doctor", *options)
        assert "Rows would be right." in printed
        options += [f"--env.eval_tags={','.join(EASY)}", "--env.tools=terminal,submit", "--env.max_steps=3"]
        options += ["--env.max_reply_tokens=128", f"--env.run_dir={tmp_path}", "--env.eval_samples=4"]
        await output_of("evaluate", "-m", "envs.swe", "evaluate", *options)
    assert solved(tmp_path) > 0


def solved(run_dir: Path) -> int:
    found = json.loads(next(run_dir.glob("eval-*.json")).read_text())
    return sum(task["solved"] for task in found["tasks"])
