"""`doctor`'s check of a foreign agent: the real one works through a scripted conversation, in a sandbox."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway.forest import Turn
from atropos_agent.types import THINK, THINK_END, AgentConfig, AgentError, AgentResult, Reply
from envs.agents.facts import ForeignAgent
from envs.agents.guests import Guests
from envs.agents.watching import WatchedSession
from envs.cli.checks import Check, Status
from envs.types import Failure, InfraError
from sandboxes.base import Backend, SandboxError, SandboxSpec
from tools.base import ToolCall

TASK = "Print one, then two."
_COMMANDS = ("echo one", "echo two")
_WINDOW = 200_000
"""The agent's tokens here, enough to measure an opening even if it is too long."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The observations of an agent in a scripted conversation. turns: those with tools, in their order."""

    result: AgentResult
    turns: Sequence[Turn]

    @property
    def opening(self) -> int:
        """Return the tokens of the first prompt with tools and a call as its reply."""
        return min((step.prompt_tokens for step in self.result.steps if step.calls), default=0)


async def examine_agent(
    agent: ForeignAgent, backend: Backend, spec: SandboxSpec, fitted: FittedFormat, budgets: AgentConfig
) -> AsyncIterator[Check]:
    """Check that an agent can be trained with a template and these budgets, in a sandbox like this."""
    if agent.late_system and fitted.template is not None and fitted.template.moves_late_system:
        text = "sends system messages in mid-conversation and the chat template has none: they would be the user's"
        yield Check(
            "agent", Status.WRONG, f"{agent.name} {text}; take a model whose template has them, or another agent"
        )
        return
    try:
        seen = await rehearse(agent, backend, spec, fitted, TASK, _COMMANDS)
    except (InfraError, SandboxError, AgentError) as error:
        yield Check("agent", Status.WRONG, f"{agent.name}: {error}")
        return
    result, told = seen.result, seen.result.metadata["agent"]
    began = f"{agent.name} ({agent.licence}) asked first after {told['start_s']:.1f} s"
    most = budgets.max_total_tokens
    missing = _missing(seen)
    if missing:
        yield Check("agent", Status.WRONG, f"{began}; {missing}")
        return
    data = {"opening": seen.opening, "max_token_length": most, "start_s": told["start_s"]}
    if most is not None and seen.opening + (budgets.max_tokens or 0) > most:
        text = f"{began}; its opening has {seen.opening} tokens and a reply {budgets.max_tokens}, which is more than "
        yield Check("agent", Status.WRONG, f"{text}--env.max_token_length {most}: raise that", data)
    else:
        yield Check("agent", Status.OK, f"{began}; its opening has {seen.opening} of {most} tokens", data)
    yield _conversation(result)


def _missing(seen: Rehearsal) -> str:
    """Return the missing part of a conversation with calls: "" if nothing is missing.

    Such incomplete rollouts say nothing about a model."""
    if not seen.turns:
        return f"but it was never answered where it shows its tools: {seen.result.error or seen.result.stop_reason}"
    if not seen.opening:
        (first, *_) = (turn.sampled.step.response for turn in seen.turns if turn.sampled is not None)
        return f"but no call was read of the reply that holds one, with the tool format in use: {first[:200]!r}"
    if not any(message.role in ("assistant", "tool") for turn in seen.turns[1:] for message in turn.given):
        return f"but it never went on from a call: {seen.result.error or 'it asked no more'}"
    return ""


async def rehearse(
    agent: ForeignAgent, backend: Backend, spec: SandboxSpec, fitted: FittedFormat, task: str, commands: Sequence[str]
) -> Rehearsal:
    """Let the real agent work on a task in a sandbox like this; the replies are these commands and its end.

    Raises InfraError, SandboxError and AgentError if it can't."""
    guest = await Guests(agent, backend).invite(spec)
    if fitted.template is None:
        raise InfraError(Failure.ENVIRONMENT, "the inference server takes messages, not token ids")
    server = ScriptedServer(_policy(agent, fitted, commands), fitted.template.tokenizer)
    config = AgentConfig(max_steps=20, max_total_tokens=_WINDOW, max_seconds=300.0)
    async with (
        backend.open(guest.spec) as sandbox,
        WatchedSession(server, fitted.template, fitted, config) as session,
    ):
        result = await guest.work(session, sandbox, task)
    return Rehearsal(result, [turn for turn, _ in session.turns if turn.asked.tools])


def _policy(agent: ForeignAgent, fitted: FittedFormat, commands: Sequence[str]) -> Callable[[Sequence[int]], str]:
    """Return the replies: the commands to prompts with the agent's shell, a title to others."""
    left = [agent.runs(command) for command in commands]
    if agent.submits:
        left.append(agent.runs(f"echo {agent.submits}"))
    shows = re.compile(rf"""["'>]{re.escape(agent.shell[0])}["'<]""")

    def reply(prompt: Sequence[int]) -> str:
        shown = "" if fitted.template is None else fitted.template.decode(list(prompt))
        # A reply begins inside of thinking where the template has opened that.
        closed = f"\n{THINK_END}\n\n" if shown.rstrip().endswith(THINK) else ""
        if not shows.search(shown):
            return f"{closed}A title"
        if not left:
            return f"{closed}Done."
        name, arguments = left.pop(0)
        return closed + fitted.format.turn(Reply(None, "", [ToolCall(name, arguments, "call_0")], []))

    return reply


def _conversation(result: AgentResult) -> Check:
    """Report the number of rows of a conversation without detours, and the requests beside it."""
    told = result.metadata["gateway"]
    branches = {str(kind): count for kind, count in told["branches"].items()}
    data = {"rows": len(result.segments), "branches": branches, "changes": told["changes"]}
    beside = ", ".join(f"{count} {kind}" for kind, count in branches.items() if kind != "main")
    rewrites = ", ".join(f"{what} ({count})" for what, count in told["changes"].items())
    text = f"{len(result.segments)} row of linear work" + (f"; beside it {beside}" if beside else "")
    if len(result.segments) == 1 and result.success:
        return Check("agent's rows", Status.OK, text + (f"; it changes: {rewrites}" if rewrites else ""), data)
    why = f"it changes what it was answered: {rewrites or 'not known how'}; it ended as {result.stop_reason}"
    return Check("agent's rows", Status.NOTE, f"{len(result.segments)} rows of linear work: {why}", data)
