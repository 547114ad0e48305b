"""The command that makes an adapter."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from embedded_engine import engine
from rich.console import Console

from envs.lab.adapting import make
from envs.lab.kinds import EASY
from envs.lab.parts import output_of
from envs.lab.recipes import CACHE, RECIPES, adapter
from envs.lab.warm_start import main


async def test_where_there_is_none_the_command_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    async def output_of(_: str, *arguments: str, log: Path | None) -> str:
        asked.append(arguments)
        return str(tmp_path / "made")

    monkeypatch.setattr("envs.lab.parts.output_of", output_of)
    assert await adapter("quick", cache=tmp_path) == tmp_path / "made"
    (arguments,) = asked
    assert arguments[:4] == ("-m", "envs.lab.warm_start", "--recipe", "quick")
    RECIPES["quick"].path(tmp_path).parent.mkdir()
    RECIPES["quick"].path(tmp_path).write_bytes(b"")
    assert main([*arguments[2:], "--out", str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy").is_file()


def test_a_home_that_can_not_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", "/proc/nobody")
    assert main(["--recipe", "quick"]) == 1
    assert "/proc/nobody/.cache/atropos-agent can't be written" in " ".join(capsys.readouterr().err.split())


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
