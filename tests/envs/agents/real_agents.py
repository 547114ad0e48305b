"""Real agents at work in a container without network, against an engine whose logprobs name each token."""

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.engines.scripted import ScriptedTurn
from atropos_agent.engines.token_server import TokenServer
from atropos_agent.types import AgentConfig, Reply, StopReason
from envs.agents.foreign import ForeignAgent
from envs.agents.guests import Guests
from envs.agents.named import FOREIGN
from envs.agents.watched import WatchedSession
from sandboxes.base import SandboxSpec
from tools.base import ToolCall

BROKEN = {
    "broken JSON": '<tool_call>\n{"name": "bash", "arguments": {"command": "ls\n</tool_call>',
    "an unknown tool": '<tool_call>\n{"name": "teleport", "arguments": {"to": "home"}}\n</tool_call>',
    "nothing": "",
}
"""Replies in Hermes' format that are none, or calls of nothing."""
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@dataclass(frozen=True)
class Does:
    """A reply that runs a command."""

    command: str
    content: str = ""
    thinking: str | None = None


@dataclass(frozen=True)
class Says:
    """A reply of text, as it is sampled. reason: why it ended."""

    text: str
    reason: str = "stop"


@dataclass(eq=False)
class NamingServer(TokenServer):
    """Samples a script's replies for prompts that show the agent's tool, "A title" for others; keeps every exchange.

    A logprob tells which token stands where. slow_s: what a reply takes."""

    agent: ForeignAgent
    fitted: object
    script: list
    exchanges: list[ScriptedTurn] = field(default_factory=list)

    def __post_init__(self):
        super().__init__(APIServerConfig(model_name="naming", base_url="", server_type="vllm"))
        self.initialized = True
        self._left = list(self.script)

    async def tokens_and_logprobs_completion(self, **kwargs):
        prompt = list(kwargs["input_ids"])
        template = self.fitted.template
        said = self._next(template.decode(prompt))
        text = said.text if isinstance(said, Says) else self._format().turn(self._reply(said))
        reason = getattr(said, "reason", "stop")
        ids = list(template.encode(text, continues=True))
        if reason == "stop":
            close = template.close_id
            ids.append(template.tokenizer.eos_token_id if close is None else close)
        ids = ids[: kwargs["max_tokens"]]
        logprobs = [-(1 + (place * 7 + token) % 50) / 16 for place, token in enumerate(ids, start=len(prompt))]
        self.exchanges.append(ScriptedTurn(prompt, ids, logprobs))
        return prompt, [ids], [logprobs], [reason]

    def _next(self, prompt):
        if not re.search(rf"""["'>]{self.agent.shell[0]}["'<]""", prompt):
            return Says("A title")
        return self._left.pop(0) if self._left else Says("Nothing is left.")

    def _format(self):
        tool, argument, others = self.agent.shell
        kinds = {bool: "boolean", str: "string"}
        properties = {name: {"type": kinds[type(value)]} for name, value in {argument: "", **others}.items()}
        schema = {"name": tool, "description": "", "parameters": {"type": "object", "properties": properties}}
        return self.fitted.with_tools([{"type": "function", "function": schema}]).format

    def _reply(self, does):
        name, arguments = self.agent.runs(does.command)
        call = ToolCall(name, arguments, "call_0")
        return Reply(does.thinking, does.content, [call], [])


@asynccontextmanager
async def at_work(backend, image, agent, fitted, script, task="Write a file.", **budgets):
    """Let a real agent work. Yields its result, the engine's exchanges, and the sandbox as it left it."""
    guests = Guests(FOREIGN[agent], backend)
    guest = await guests.invite(SandboxSpec(image, workdir="/app"))
    server = NamingServer(FOREIGN[agent], fitted, script)
    usual = {"max_seconds": 120.0, "max_total_tokens": 60_000, "max_tokens": 2048, "max_steps": 20}
    config = AgentConfig(**(usual | budgets))
    async with (
        backend.open(guest.spec) as sandbox,
        WatchedSession(server, fitted.template, fitted, config) as session,
    ):
        result = await guest.work(session, sandbox, task)
        yield result, server.exchanges, sandbox


async def check_linear(backend, image, agent, fitted):
    """A task without detours: one row, which holds every token that was sampled for it, as the engine's log says."""
    submits = bool(FOREIGN[agent].submits)
    end = Does(SUBMIT) if submits else Says("Done.")
    script = [Does("echo hi >/app/f", content="I write."), Does("cat /app/f", thinking=None), end]
    async with at_work(backend, image, agent, fitted, script) as (result, exchanges, sandbox):
        assert (await sandbox.exec("cat /app/f")).output == "hi\n"
        assert not (await sandbox.exec("touch /opt/agent/x")).ok, "its pack can't be written"
    assert result.stop_reason == (StopReason.SUBMITTED if submits else StopReason.ANSWERED), result.error
    (row,) = result.segments
    main = [one for one in exchanges if list(row.tokens[: len(one.prompt)]) == list(one.prompt)]
    assert len(main) == 3
    for one in main:
        place = slice(len(one.prompt), len(one.prompt) + len(one.ids))
        assert list(row.tokens[place]) == list(row.masked_tokens[place]) == list(one.ids)
        assert list(row.logprobs[place]) == list(one.logprobs)
    assert_all_counted(result, exchanges)
    assert rows_of_rerendering(fitted, exchanges) >= len(result.segments)


async def check_malformed(backend, image, agent, fitted, *spoiled):
    """Replies that are spoiled: what was sampled is trained or counted, and the run ends as the agent decides."""
    end = Does(SUBMIT) if FOREIGN[agent].submits else Says("Done.")
    script = [Does("echo hi >/app/f"), *spoiled, end]
    async with at_work(backend, image, agent, fitted, script) as (result, exchanges, _):
        assert_all_counted(result, exchanges)
    assert result.stop_reason in (StopReason.SUBMITTED, StopReason.ANSWERED, StopReason.BROKE_OFF)
    return result


def assert_all_counted(result, exchanges):
    """Each sampled token is trained in exactly one row, or counted by its reason."""
    untrained = sum(result.metadata["gateway"]["untrained_tokens"].values())
    assert result.sampled_tokens + untrained == sum(len(one.ids) for one in exchanges)


def rows_of_rerendering(fitted, exchanges):
    """The control: how many rows there are where a prompt is merged with the one before only if that and its reply,
    decoded and encoded again, are its beginning."""
    template, rows, before = fitted.template, 0, None
    for one in exchanges:
        again = list(template.encode(template.decode(one.prompt), continues=False))
        if before is None or again[: len(before)] != before:
            rows += 1
        before = again + list(template.encode(template.decode(one.ids), continues=True))
    return rows
