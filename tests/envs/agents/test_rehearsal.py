"""A foreign agent in a scripted conversation."""

from dataclasses import replace
from functools import partial

import pytest
from small_agent import AGENT, SCRIPT, start

from atropos_agent.types import AgentConfig, StopReason
from envs.agents.examine import examine_agent
from envs.agents.rehearsal import rehearse, reply_opening, shell_pattern
from envs.cli.checks import Status
from sandboxes.base import SandboxSpec


@pytest.mark.docker
async def test_its_commands_are_run_and_its_turns_written_down(docker_backend, base_image, hermes):
    spec = SandboxSpec(base_image, workdir="/app")
    seen = await rehearse(AGENT, docker_backend, spec, hermes, "Look.", ["echo one", "echo two"])
    assert [call.arguments["command"] for step in seen.result.steps for call in step.calls] == ["echo one", "echo two"]
    assert len(seen.turns) == 3
    assert seen.opening == seen.result.steps[0].prompt_tokens


BY_TEXT = replace(
    AGENT,
    shell=None,
    edits=lambda path, text: f"WRITE {path} {text}",
    start=partial(start, script=SCRIPT.replace(', "tools": TOOLS', "")),
)
"""Shows no tools, and ends with its first reply."""


@pytest.mark.docker
async def test_one_that_works_by_text_is_measured_by_its_first_reply(docker_backend, base_image, hermes):
    spec = SandboxSpec(base_image, workdir="/app")
    seen = await rehearse(BY_TEXT, docker_backend, spec, hermes, "Look.", ["echo one", "echo two"])
    assert [step.response for step in seen.result.steps] == ["WRITE commands.txt echo one"]
    assert seen.result.stop_reason is StopReason.ANSWERED
    assert len(seen.turns) == 1 and seen.opening == seen.result.steps[0].prompt_tokens
    budgets = AgentConfig(max_total_tokens=4096)
    checks = [check async for check in examine_agent(BY_TEXT, docker_backend, spec, hermes, budgets)]
    assert [check.status for check in checks] == [Status.OK, Status.OK]


@pytest.mark.parametrize(
    ("shown", "there"), [('"name": "bash"', True), (">bash<", True), ("'bash'", True), ("a bash shell", False)]
)
def test_a_prompt_shows_the_shell_where_its_name_stands_by_itself(shown, there):
    assert (shell_pattern(AGENT).search(shown) is not None) == there


def test_a_reply_begins_by_closing_thinking_that_the_template_has_opened():
    assert reply_opening("assistant\n<think>\n") == "\n</think>\n\n"
    assert reply_opening("assistant\n") == ""
