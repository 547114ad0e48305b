"""An agent's manner: what it would send for a task, in the tokens of real rollouts."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from real_agents import Does, at_work

from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.requests import HistoryMessage
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, Reply
from envs.agents.naming import FOREIGN, find_foreign_agent
from envs.lab.kinds import KINDS
from envs.lab.manner import _TASK, Manner
from envs.lab.synthetic import Example, call, examples, expert_replies
from sandboxes.docker.backend import DockerBackend

MINI = FOREIGN["mini-swe-agent"]
BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
MANNER = Manner(
    MINI,
    [HistoryMessage("system", "Help."), HistoryMessage("user", f"Solve this: {_TASK}\nUse bash.")],
    [BASH],
    [HistoryMessage("tool", "silence")],
)
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def test_only_agents_that_others_made_have_a_manner_of_their_own() -> None:
    assert find_foreign_agent("mini-swe-agent") is MINI
    assert find_foreign_agent(None) is find_foreign_agent("") is find_foreign_agent("atropos") is None
    with pytest.raises(ValueError, match="did you mean codex"):
        find_foreign_agent("codexx")


def test_what_our_agent_says_is_said_with_the_tools_of_the_other() -> None:
    first, last = map(MANNER.convert_reply, (call("terminal", "Plan: touch.", command="touch a"), call("submit")))
    assert (first.content, first.calls[0].name, first.calls[0].arguments) == (
        "Plan: touch.",
        "bash",
        {"command": "touch a"},
    )
    assert last.calls[0].arguments == {"command": SUBMIT}
    pi = Manner(FOREIGN["pi"], (), (), ())
    assert pi.convert_reply(call("submit")) == Reply(None, "Done.", (), ()), "its end is a reply without calls"
    assert MANNER.convert_reply(first) == first


async def rows(tokenizer: Any, tasks: Sequence[Example], replies: Any) -> list[str]:
    found = []
    async for row in MANNER.transcripts(tasks, tokenizer, replies):
        trained = [token for token in row.masked_tokens if token != IGNORED]
        found.append((row.full_text, tokenizer.decode(trained)))
    return found


async def test_a_transcript_holds_the_task_and_both_replies(smollm2_tokenizer: Any) -> None:
    (task,) = examples(1, 0)
    ((text, trained),) = await rows(smollm2_tokenizer, [task], expert_replies)
    assert f"Solve this: {task.instruction}\nUse bash." in text and _TASK not in text
    assert text.index(task.instruction) < text.index('"bash", "arguments"') < text.index("silence")
    assert "silence" not in trained and SUBMIT in trained and "<|im_end|>" in trained


async def test_behind_another_first_reply_nothing_is_made_up(smollm2_tokenizer: Any) -> None:
    (task,) = examples(1, 0)
    for first in (call("terminal", command="ls"), "It is done.", "<tool_call>\n{"):
        ((text, trained),) = await rows(smollm2_tokenizer, [task], lambda _, first=first: [first, call("submit")])
        assert "silence" not in text and SUBMIT not in trained


async def test_briefly_nothing_stands_behind_the_task(smollm2_tokenizer: Any) -> None:
    (task,) = examples(1, 0)
    opening = [*MANNER.opening, HistoryMessage("user", "Now begin.")]
    (whole,) = [row async for row in MANNER.transcripts([task], smollm2_tokenizer, expert_replies)]
    brief = replace(MANNER, opening=opening).brief()
    (row,) = [row async for row in brief.transcripts([task], smollm2_tokenizer, expert_replies)]
    assert row.full_text == whole.full_text.replace("\nUse bash.", "")
    assert [token for token in row.masked_tokens if token != IGNORED] == [
        token for token in whole.masked_tokens if token != IGNORED
    ]


@pytest.mark.slow
@pytest.mark.docker
async def test_the_tokens_are_those_of_the_real_agent(
    docker_backend: DockerBackend, base_image: str, smollm2_tokenizer: Any
) -> None:
    manner = await Manner.record(MINI, smollm2_tokenizer)
    fitted = FittedFormat.of("auto", ChatTemplate(smollm2_tokenizer))
    task = Example("create_empty_file", "Make the file ready, of size zero.", "touch ready", plan="touch it.")
    (row,) = [row async for row in manner.transcripts([task], smollm2_tokenizer, expert_replies)]
    script = [Does("touch ready", content="Plan: touch it."), Does(SUBMIT)]
    async with at_work(docker_backend, base_image, MINI.name, fitted, script, task.instruction) as (result, _, _):
        (real,) = result.segments
    assert list(row.tokens) == list(real.tokens)
    assert list(row.masked_tokens) == list(real.masked_tokens)


def test_commands_of_made_up_tasks_print_nothing_as_the_one_that_was_listened_to(tmp_path: Path) -> None:
    for place, task in enumerate(examples(len(KINDS), 0)):
        world = tmp_path / str(place)
        for name, text in task.files.items():
            (world / name).parent.mkdir(parents=True, exist_ok=True)
            (world / name).write_text(text)
        world.mkdir(exist_ok=True)
        ran = subprocess.run(["sh", "-c", task.command], cwd=world, capture_output=True, text=True, check=True)
        assert ran.stdout + ran.stderr == "", task.command
