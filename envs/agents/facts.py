"""The known facts of a foreign agent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.agents.recipes import Recipe
from tools.mcp.servers import MCPServer, Transport

HOME = "/tmp/.agent"
"""The folder of an agent's own files in the sandbox: its settings, its sessions."""
PACK = "/opt/agent"
"""The place of its pack there."""
PROTOCOLS = ("chat", "responses", "messages", "gemini")
"""The protocols of the gateway."""
KEY = "none"
"""The stand-in for a key: the door identifies the sender."""


@dataclass(frozen=True, slots=True)
class Place:
    """The values to start an agent with.

    task: its instruction. url: the gateway's, without a path; OpenAI clients want `v1`. workdir: its working directory.
    cpu, musl: as in names of npm's packages: "x64", and "-musl" in images of that C library.
    window: tokens of prompt and reply together. reply: tokens of one reply. turns: the most replies.
    servers: MCP servers for it; it starts those by stdio.
    """

    task: str
    url: str
    workdir: str
    cpu: str = "x64"
    musl: str = ""
    window: int = 32768
    reply: int = 4096
    turns: int = 100
    servers: Sequence[MCPServer] = ()

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Start:
    """A command line without a shell, its variables, and files to write before it, by path."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForeignAgent:
    """An agent that speaks to a gateway.

    licence: of its package. recipe: the packages of its pack. start: its command.
    protocol: one of `PROTOCOLS`. opening: tokens before its first reply, about (SmolLM2's tokenizer).
    budget: the way to report its budget to it. beside: its requests beside its main line.
    shell: its tool for commands: name, the argument with the command, other required arguments; None without tools.
    edits: of an agent without tools: its reply to write a file, by path and text.
    done: its reply to end its work.
    failures: the meaning of its exit statuses.
    submits: a text of its last call as the sign of its end; "" if a reply without calls is the sign.
    finishes: its tool with a call as another sign of its end; "" for none.
    late_system: whether it sends system messages in mid-conversation.
    mcp: the transports of MCP servers that its settings have a place for.
    """

    name: str
    licence: str
    recipe: Recipe
    start: Callable[[Place], Start]
    protocol: str
    opening: int
    budget: str
    beside: str
    shell: tuple[str, str, Mapping[str, Any]] | None
    failures: Mapping[int, str] = field(default_factory=dict)
    submits: str = ""
    finishes: str = ""
    late_system: bool = False
    edits: Callable[[str, str], str] | None = None
    done: str = "Done."
    mcp: Collection[Transport] = ()

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise ValueError(f"agent {self.name}: protocol {self.protocol!r} is none of {known}")
        if (self.shell is None) == (self.edits is None):
            raise ValueError(f"agent {self.name}: give either shell or edits")

    def runs(self, command: str) -> tuple[str, dict[str, Any]]:
        """Return the call to run a command: the tool's name and its arguments. Raises ValueError without tools."""
        if self.shell is None:
            raise ValueError(f"agent {self.name} calls no tools")
        tool, argument, others = self.shell
        return tool, {argument: command, **others}
