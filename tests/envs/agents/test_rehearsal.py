"""A foreign agent in a scripted conversation."""

import pytest
from small_agent import AGENT

from envs.agents.rehearsal import rehearse, reply_opening, shows_shell
from sandboxes.base import SandboxSpec


@pytest.mark.docker
async def test_its_commands_are_run_and_its_turns_written_down(docker_backend, base_image, hermes):
    spec = SandboxSpec(base_image, workdir="/app")
    seen = await rehearse(AGENT, docker_backend, spec, hermes, "Look.", ["echo one", "echo two"])
    assert [call.arguments["command"] for step in seen.result.steps for call in step.calls] == ["echo one", "echo two"]
    assert len(seen.turns) == 3
    assert seen.opening == seen.result.steps[0].prompt_tokens


@pytest.mark.parametrize(
    ("shown", "there"), [('"name": "bash"', True), (">bash<", True), ("'bash'", True), ("a bash shell", False)]
)
def test_a_prompt_shows_the_shell_where_its_name_stands_by_itself(shown, there):
    assert (shows_shell(AGENT).search(shown) is not None) == there


def test_a_reply_begins_by_closing_thinking_that_the_template_has_opened():
    assert reply_opening("assistant\n<think>\n") == "\n</think>\n\n"
    assert reply_opening("assistant\n") == ""
