"""What is known of an agent that others made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.agents.recipes import Recipe

HOME = "/tmp/.agent"
"""Where an agent's own files lie in the sandbox: its settings, its sessions."""
PACK = "/opt/agent"
"""Where its pack stands there."""
KEY = "none"
"""What stands for a key: who asks is known by the door."""


@dataclass(frozen=True, slots=True)
class Place:
    """What an agent is started with.

    task: what it is told to do. url: the gateway's, without a path; OpenAI clients want `v1`. workdir: where it works.
    cpu, musl: as in names of npm's packages: "x64", and "-musl" in images of that C library.
    window: tokens of prompt and reply together. reply: tokens of one reply. turns: replies that it may have.
    """

    task: str
    url: str
    workdir: str
    cpu: str = "x64"
    musl: str = ""
    window: int = 32768
    reply: int = 4096
    turns: int = 100

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Start:
    """A command line without a shell, its variables, and files that are there before it, by path."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForeignAgent:
    """An agent that speaks to a gateway.

    licence: of its package. recipe: what its pack is made of. start: how it is started.
    protocol: "chat", "responses" or "messages". opening: tokens before its first reply, about (SmolLM2's tokenizer).
    budget: how it is told what it may use. beside: what it sends beside its main line.
    shell: its tool that runs a command: name, the argument that holds the command, other arguments that it needs.
    failures: what it means when it ends with an exit status.
    submits: a text of its last call that says that it is done; "" where a reply without calls does.
    finishes: its tool whose call says so, too; "" for none.
    late_system: whether it sends system messages in mid-conversation.
    """

    name: str
    licence: str
    recipe: Recipe
    start: Callable[[Place], Start]
    protocol: str
    opening: int
    budget: str
    beside: str
    shell: tuple[str, str, Mapping[str, Any]]
    failures: Mapping[int, str] = field(default_factory=dict)
    submits: str = ""
    finishes: str = ""
    late_system: bool = False

    def __post_init__(self) -> None:
        if self.protocol not in ("chat", "responses", "messages"):
            raise ValueError(f"agent {self.name}: protocol {self.protocol!r} is none of chat, responses, messages")

    def runs(self, command: str) -> tuple[str, dict[str, Any]]:
        """Return the call that runs a command: the tool's name and its arguments."""
        tool, argument, others = self.shell
        return tool, {argument: command, **others}
