"""`doctor`'s check of a foreign agent: the real one works through a scripted conversation, in a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator

from atropos_agent.fitted import FittedFormat
from atropos_agent.types import AgentConfig, AgentError, AgentResult
from envs.agents.facts import ForeignAgent
from envs.agents.rehearsal import Rehearsal, rehearse
from envs.agents.room import examine_room
from envs.cli.checks import Check, Status
from envs.types import InfraError
from sandboxes.base import Backend, SandboxError, SandboxSpec
from sandboxes.plurals import plural

TASK = "Print one, then two."
_COMMANDS = ("echo one", "echo two")


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
    result, metadata = seen.result, seen.result.metadata["agent"]
    began = f"{agent.name} ({agent.licence}) asked first after {metadata['start_s']:.1f} s"
    most = budgets.max_total_tokens
    missing = _missing_part(seen)
    if missing:
        yield Check("agent", Status.WRONG, f"{began}; {missing}")
        return
    data = {"opening": seen.opening, "max_token_length": most, "start_s": metadata["start_s"]}
    if most is not None and seen.opening + (budgets.max_tokens or 0) > most:
        text = f"{began}; its opening has {seen.opening} tokens and a reply {budgets.max_tokens}, which is more than "
        yield Check("agent", Status.WRONG, f"{text}--env.max_token_length {most}: raise that", data)
    else:
        yield Check("agent", Status.OK, f"{began}; its opening has {seen.opening} of {most} tokens", data)
    yield _check_conversation(result)
    if not seen.by_text and most is not None and seen.opening + 2 * (budgets.max_tokens or 0) < most:
        try:
            yield await examine_room(agent, backend, spec, fitted, budgets, seen.opening)
        except (InfraError, SandboxError, AgentError) as error:
            yield Check("agent's room", Status.NOTE, f"{agent.name}: it was not seen where it makes room: {error}")


def _missing_part(seen: Rehearsal) -> str:
    """Return the missing part of a conversation with calls: "" if nothing is missing.

    Such incomplete rollouts say nothing about a model."""
    if not seen.turns:
        return f"but it was never answered where it shows its tools: {seen.result.error or seen.result.stop_reason}"
    if not seen.opening:
        (first, *_) = (turn.sampled.step.response for turn in seen.turns if turn.sampled is not None)
        return f"but no call was read of the reply that holds one, with the tool format in use: {first[:200]!r}"
    if seen.by_text:  # an edit is no reason to ask again
        return ""
    if not any(message.role in ("assistant", "tool") for turn in seen.turns[1:] for message in turn.given):
        return f"but it never went on from a call: {seen.result.error or 'it asked no more'}"
    return ""


def _check_conversation(result: AgentResult) -> Check:
    """Report the number of rows of a conversation without detours, and the requests beside it."""
    counts = result.metadata["gateway"]
    branches = {str(kind): count for kind, count in counts["branches"].items()}
    data = {"rows": len(result.segments), "branches": branches, "changes": counts["changes"]}
    beside = ", ".join(f"{count} {kind}" for kind, count in branches.items() if kind != "main")
    rewrites = ", ".join(f"{what} ({count})" for what, count in counts["changes"].items())
    text = f"{len(result.segments)} row of linear work" + (f"; beside it {beside}" if beside else "")
    if len(result.segments) == 1 and result.success:
        return Check("agent's rows", Status.OK, text + (f"; it changes: {rewrites}" if rewrites else ""), data)
    why = f"it changes what it was answered: {rewrites or 'not known how'}; it ended as {result.stop_reason}"
    return Check("agent's rows", Status.NOTE, f"{plural(len(result.segments), 'row')} of linear work: {why}", data)
