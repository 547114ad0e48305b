"""What `doctor` says of a foreign agent."""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
from native_families import one_system_message
from small_agent import AGENT, SCRIPT, start

from atropos_agent.fitted import FittedFormat
from atropos_agent.formats.hermes import Hermes
from atropos_agent.formats.plain import Plain
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig
from envs.agents.examine import examine_agent
from envs.cli.checks import Status
from sandboxes.base import SandboxError, SandboxSpec

WITHOUT_LATE = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('the first') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


async def test_system_messages_that_the_template_cannot_take_are_refused_before_it_is_started(
    smollm2_tokenizer, hermes
):
    tokenizer = deepcopy(smollm2_tokenizer)
    tokenizer.chat_template = WITHOUT_LATE
    talks = replace(AGENT, late_system=True)
    for agent, fitted, refused in (
        (talks, FittedFormat.of("hermes", ChatTemplate(tokenizer)), True),
        (talks, hermes, False),
        (AGENT, FittedFormat.of("hermes", ChatTemplate(tokenizer)), False),
    ):
        found = examine_agent(agent, Unopened(), SandboxSpec("any"), fitted, AgentConfig())
        (check,) = [check async for check in found]
        assert check.status is Status.WRONG
        assert ("system messages in mid-conversation" in check.text) == refused


class Unopened:
    """A backend that opens no sandbox."""

    def open(self, spec):
        raise SandboxError("it is not opened here")


@pytest.mark.docker
async def test_it_is_measured_or_told_why_it_cannot_be(docker_backend, base_image, hermes):
    async def checks(agent, **budgets):
        spec = SandboxSpec(base_image, workdir="/app")
        found = examine_agent(agent, docker_backend, spec, hermes, AgentConfig(**budgets))
        return [check async for check in found]

    agent, rows = await checks(AGENT, max_total_tokens=4096)
    assert (agent.status, rows.status) == (Status.OK, Status.OK)
    assert 20 < agent.data["opening"] < 400
    assert "1 row of linear work" in rows.text
    agent, _ = await checks(AGENT, max_total_tokens=100, max_tokens=90)
    assert agent.status is Status.WRONG and "--env.max_token_length 100: raise that" in agent.text
    (broken,) = await checks(replace(AGENT, start=partial(start, script="raise SystemExit(9)\n" + SCRIPT)))
    assert broken.status is Status.WRONG and "did not start" in broken.text


TWO_SYSTEMS = SCRIPT.replace(
    "messages = [", 'messages = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, '
)
LATE = SCRIPT.replace("messages = [", 'messages = [{"role": "user", "content": [{"type": "image_url"}]}, ')
DEAF = SCRIPT.replace("    messages.append(message)\n", "    break\n")


@pytest.mark.docker
async def test_it_is_right_only_where_its_calls_were_read_and_gone_on_from(
    docker_backend, base_image, hermes, smollm2_tokenizer
):
    async def check(script, fitted):
        spec = SandboxSpec(base_image, workdir="/app")
        agent = replace(AGENT, start=partial(start, script=script))
        found = [check async for check in examine_agent(agent, docker_backend, spec, fitted, AgentConfig())]
        return found[0]

    one = one_system_message(smollm2_tokenizer)
    assert (await check(TWO_SYSTEMS, one)).status is Status.OK
    refused = await check(LATE, hermes)
    assert refused.status is Status.WRONG and "can't be shown to the model" in refused.text
    deaf = await check(DEAF, hermes)
    assert deaf.status is Status.WRONG and "never went on from a call" in deaf.text
    unread = await check(SCRIPT, replace(hermes, format=Unreading()))
    assert unread.status is Status.WRONG and "no call was read" in unread.text


class Unreading(Hermes):
    """Writes calls and reads none."""

    def parse(self, text, **_):
        return Plain().parse("It is nothing.")
