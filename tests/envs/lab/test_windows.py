"""Tasks that are longer than the window: others are held out, and only by summaries is there a way through them."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, AgentResult, StopReason
from envs.lab import windows
from envs.lab.presets import PRESETS
from envs.lab.synthetic import WORKING_DIR, Example, call
from tools import ToolCall, ToolResult, default_tools

TRAIN, HELD_OUT = windows.tasks()


def words(task: Example) -> list[str]:
    """The words that are to be written down."""
    return task.command.rpartition("echo ")[2].split()[:2]


def pages_of(task: Example) -> list[str]:
    return [text for name, text in sorted(task.files.items()) if name.startswith("pages/")]


def test_the_tasks_to_evaluate_on_have_other_words_and_wordings_than_those_to_train_on() -> None:
    assert (len(TRAIN), len(HELD_OUT)) == (12, 12)
    assert not {task.instruction for task in TRAIN} & {task.instruction for task in HELD_OUT}
    assert not {words(task)[0] for task in TRAIN} & {words(task)[0] for task in HELD_OUT}


@pytest.mark.parametrize("task", [*TRAIN, *HELD_OUT], ids=lambda task: "-".join(words(task)))
def test_each_word_is_told_once(task: Example) -> None:
    pages = pages_of(task)
    first, last = words(task)
    assert [bool(re.search(rf"\b{first}\b", page)) for page in pages] == [True] + [False] * 5
    assert [bool(re.search(rf"\b{last}\b", page)) for page in pages] == [False] * 5 + [True]


class Reader:
    """Reads all pages and sums up what it knows of the first word from what it is shown."""

    def __init__(self, tokenizer: Any, task: Example) -> None:
        self.tokenizer, self.template, self.pages = tokenizer, ChatTemplate(tokenizer), 0
        self.task = task

    def says(self, prompt: Sequence[int]) -> str:
        shown = self.template.decode(list(prompt))
        first, last = words(self.task)
        known = first if re.search(rf"\b{first}\b", shown) else "unknown"
        if shown.rstrip().endswith("call no tool.<|im_end|>\n<|im_start|>assistant"):
            return f"Up to page {self.pages} the first word is {known}."
        if self.pages < windows.PAGES:
            return Hermes().turn(call("terminal", command="sh next"))
        if f"echo {known}" in shown:
            return "Done."
        return Hermes().turn(call("terminal", command=f"echo {known} {last} > out"))

    async def execute(self, asked: ToolCall) -> ToolResult:
        if asked.arguments["command"] != "sh next":
            return ToolResult("(no output)", call=asked)
        self.pages += 1
        return ToolResult(pages_of(self.task)[self.pages - 1].strip(), call=asked)

    async def work(self, compaction: str) -> AgentResult:
        """Work with the budgets of the preset."""
        given = PRESETS["windows"].environment
        config = AgentConfig(
            working_dir=WORKING_DIR,
            max_tokens=given["env.max_reply_tokens"],  # type: ignore[arg-type]
            max_steps=given["env.max_steps"],  # type: ignore[arg-type]
            max_total_tokens=windows.WINDOW - 8,  # as many as an inference server leaves free
            compaction=compaction,
        )
        tools = default_tools(None, windows.TOOLS)  # type: ignore[arg-type]  # never run
        server = ScriptedServer(self.says, self.tokenizer)
        agent = AtroposAgent(server, tools, config, execute_tool=self.execute, template=self.template)
        return await agent.run(self.task.instruction)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return asyncio.run(windows.spelled(random.Random(0)))


@pytest.mark.engine
@pytest.mark.parametrize("task", [*TRAIN, *HELD_OUT], ids=lambda task: "-".join(words(task)))
async def test_a_task_takes_three_windows(tokenizer: Any, task: Example) -> None:
    result = await Reader(tokenizer, task).work("summary")
    assert result.stop_reason is StopReason.ANSWERED
    assert [step.branch for step in result.steps] == [*["main"] * 3, "summary"] * 2 + ["main"] * 2
    assert result.steps[-2].calls[0].arguments == {"command": f"echo {' '.join(words(task))} > out"}
    assert not result.metadata["conversations"]["untrained_tokens"]


@pytest.mark.engine
async def test_without_summaries_no_task_comes_to_its_last_page(tokenizer: Any) -> None:
    for task in (*TRAIN, *HELD_OUT):
        reader = Reader(tokenizer, task)
        assert (await reader.work("none")).stop_reason is StopReason.MAX_TOKENS
        assert reader.pages < windows.PAGES
