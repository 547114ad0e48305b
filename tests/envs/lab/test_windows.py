"""Tasks that are longer than the window: others are held out, and only by summaries is there a way through them."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import AUTO
from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, AgentResult, Reply, StopReason
from envs.agents.facts import ForeignAgent
from envs.agents.naming import find_foreign_agent
from envs.agents.rehearsal import run_policy, shell_pattern
from envs.lab import windows
from envs.lab.presets import FOREIGN_WINDOW, PRESETS, WINDOW, WINDOWS_TOOLS
from envs.lab.synthetic import WORKING_DIR, Example, call
from sandboxes.base import SandboxSpec
from sandboxes.docker.backend import DockerBackend
from tools import ToolCall, ToolResult, default_tools

TRAIN, HELD_OUT = windows.tasks()
SMALL_PI = str(Path(__file__).parents[3] / "benchmarks/small_pi.py")
PI = find_foreign_agent(SMALL_PI)
assert isinstance(PI, ForeignAgent)


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
        if self.must_sum_up(shown):
            return f"Up to page {self.pages} the first word is {known}."
        if self.pages < windows.PAGES:
            return Hermes().turn(self.calls("sh next"))
        if f"echo {known}" in shown:
            return "Done."
        return Hermes().turn(self.calls(f"echo {known} {last} > out"))

    def must_sum_up(self, shown: str) -> bool:
        return shown.rstrip().endswith("call no tool.<|im_end|>\n<|im_start|>assistant")

    def calls(self, command: str) -> Reply:
        return call("terminal", command=command)

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
            max_total_tokens=WINDOW - 8,  # as many as an inference server leaves free
            compaction=compaction,
        )
        tools = default_tools(None, WINDOWS_TOOLS)  # type: ignore[arg-type]  # never run
        server = ScriptedServer(self.says, self.tokenizer)
        agent = AtroposAgent(server, tools, config, execute_tool=self.execute, template=self.template)
        return await agent.run(self.task.instruction)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return asyncio.run(windows.make_word_tokenizer(random.Random(0)))


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


class ReaderBehindPi(Reader):
    """The same by pi's tool, which shows the pages."""

    def must_sum_up(self, shown: str) -> bool:
        return not shell_pattern(PI).search(shown)

    def calls(self, command: str) -> Reply:
        self.pages += command == "sh next"
        return Reply(None, "", (ToolCall(*PI.runs(command)),), ())


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.engine
@pytest.mark.timeout(900)
async def test_pi_takes_three_windows(docker_backend: DockerBackend, base_image: str) -> None:
    """With the vocabulary and the budgets of its preset, in which it is the one that decides when to sum up."""
    tokenizer = await windows.make_word_tokenizer(random.Random(0), await windows.record_agent(PI))
    fitted = FittedFormat.of(AUTO, ChatTemplate(tokenizer))
    given = PRESETS["windows"].for_agent(SMALL_PI).environment
    config = AgentConfig(
        max_tokens=given["env.max_reply_tokens"],  # type: ignore[arg-type]
        max_steps=given["env.max_steps"],  # type: ignore[arg-type]
        max_total_tokens=FOREIGN_WINDOW - 8,
        max_seconds=120.0,
    )
    for task in (TRAIN[0], HELD_OUT[0]):
        says, spec = ReaderBehindPi(tokenizer, task).says, SandboxSpec(base_image, workdir=WORKING_DIR)
        seen = await run_policy(PI, docker_backend, spec, fitted, task.instruction, says, config, task.files)
        steps = sorted(seen.result.steps, key=lambda step: step.index)
        *branches, last = [step.branch for step in steps]
        assert branches == ["main", "summary", *["main"] * 3, "summary", *["main"] * 4], seen.result.error
        assert last == "side call", "it sums up once more when it has done its work"
        assert seen.result.stop_reason is StopReason.ANSWERED
        assert steps[-3].calls[0].arguments == {"command": f"echo {' '.join(words(task))} > out"}
        told = seen.result.metadata["gateway"]
        assert told["untrained_tokens"].keys() == {"side call"} and told["compaction"]["count"] == 2
        assert sum(row.turns for row in seen.result.segments) == len(branches), "each reply is in one row"
