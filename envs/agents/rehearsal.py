"""A foreign agent in a scripted conversation: the real one works in a sandbox, and its replies are written down."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.forest import Turn
from atropos_agent.types import THINK, THINK_END, AgentConfig, AgentResult, Reply
from envs.agents.facts import ForeignAgent
from envs.agents.guests import Guests
from envs.agents.watching import WatchedSession
from envs.types import Failure, InfraError
from sandboxes.base import Backend, SandboxSpec
from tools.base import ToolCall

Policy = Callable[[Sequence[int]], str]
"""Returns the text of the reply to a prompt."""
_WINDOW = 200_000
"""The agent's tokens here, enough to measure an opening even if it is too long."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The observations of an agent in a scripted conversation. turns: those of its work, in their order; `every` has
    those beside it too."""

    result: AgentResult
    every: Sequence[Turn]
    by_text: bool = False

    @property
    def turns(self) -> Sequence[Turn]:
        return [turn for turn in self.every if turn.request.tools or self.by_text]

    @property
    def opening(self) -> int:
        """Return the tokens of the first prompt with a call as its reply, or an edit as text."""
        return min((step.prompt_tokens for step in self.result.steps if step.calls or self.by_text), default=0)


async def rehearse(
    agent: ForeignAgent, backend: Backend, spec: SandboxSpec, fitted: FittedFormat, task: str, commands: Sequence[str]
) -> Rehearsal:
    """Let the real agent work on a task in a sandbox like this; the replies are these commands and its end.

    Raises InfraError, SandboxError and AgentError if it can't."""
    config = AgentConfig(max_steps=20, max_total_tokens=_WINDOW, max_seconds=300.0)
    return await run_policy(agent, backend, spec, fitted, task, _make_policy(agent, fitted, commands), config)


async def run_policy(
    agent: ForeignAgent,
    backend: Backend,
    spec: SandboxSpec,
    fitted: FittedFormat,
    task: str,
    policy: Policy,
    config: AgentConfig,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Rehearsal:
    """Let the real agent work on a task in a sandbox like this, with these replies. Raises as `rehearse` does.

    files: written into the sandbox before, by path."""
    guest = await Guests(agent, backend).prepare(spec)
    if fitted.template is None:
        raise InfraError(Failure.ENVIRONMENT, "the inference server takes messages, not token ids")
    server = ScriptedServer(policy, fitted.template.tokenizer)
    async with (
        backend.open(guest.spec) as sandbox,
        WatchedSession(server, fitted.template, fitted, config) as session,
    ):
        for path, text in files.items():
            await sandbox.write_file(path, text.encode())
        result = await guest.work(session, sandbox, task)
    return Rehearsal(result, [turn for turn, _ in session.turns], session.by_text)


def shell_pattern(agent: ForeignAgent) -> re.Pattern[str]:
    """Return the pattern of prompts with an agent's shell, in its tools or in a call; of all for one without tools."""
    return re.compile("" if agent.shell is None else rf"""["'>]{re.escape(agent.shell[0])}["'<]""")


def reply_opening(shown: str) -> str:
    """Return the beginning of a reply to a prompt: it begins inside of thinking where the template has opened that."""
    return f"\n{THINK_END}\n\n" if shown.rstrip().endswith(THINK) else ""


def _make_policy(agent: ForeignAgent, fitted: FittedFormat, commands: Sequence[str]) -> Policy:
    """Return the replies: the commands to prompts with the agent's shell, a title to others."""
    submits = [f"echo {agent.submits}"] if agent.submits else []
    left = [_command_reply(agent, fitted, command) for command in (*commands, *submits)]
    shows = shell_pattern(agent)

    def reply(prompt: Sequence[int]) -> str:
        shown = "" if fitted.template is None else fitted.template.decode(list(prompt))
        closed = reply_opening(shown)
        if not shows.search(shown):
            return f"{closed}A title"
        if not left:
            return f"{closed}{agent.done}"
        return closed + left.pop(0)

    return reply


def _command_reply(agent: ForeignAgent, fitted: FittedFormat, command: str) -> str:
    """Return the reply that runs a command, or writes it down where the agent can only edit."""
    if agent.edits is not None:
        return agent.edits("commands.txt", command)
    return fitted.format.turn(Reply(None, "", [ToolCall(*agent.runs(command), "call_0")], []))
