"""The manner of a foreign agent with a model: recorded once from the real one, then imitated for any task.

A small model has to know it before it can learn through that agent. The real agent works through one scripted
conversation in a sandbox. Its requests are then given to the gateway's own code with other tasks and other replies, so
the tokens are those of real rollouts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import AUTO
from atropos_agent.gateway import Session
from atropos_agent.gateway.requests import GatewayRequest, HistoryMessage, Schemas
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, Reply, SequenceData
from envs.agents.facts import ForeignAgent
from envs.agents.rehearsal import rehearse
from envs.lab.synthetic import TOOLS, WORKING_DIR, Example
from envs.types import Failure, InfraError
from sandboxes.base import SandboxSpec
from sandboxes.docker.backend import DockerBackend
from sandboxes.docker.images.base_image import ensure_base_image
from tools import ToolCall

_TASK = "Do what the note on the wall says."
"""Stands in the place of a task, and nowhere else in an agent's requests."""

_SILENT = "true"
"""A command without output, as those of all made-up tasks."""


@dataclass(frozen=True, slots=True)
class Manner:
    """An agent's messages, for the task `_TASK`.

    opening: before the first reply. tools: in its requests. behind: after a command without output.
    """

    agent: ForeignAgent
    opening: Sequence[HistoryMessage]
    tools: Schemas
    behind: Sequence[HistoryMessage]

    @classmethod
    async def record(cls, agent: ForeignAgent, tokenizer: Any, tool_format: str = AUTO) -> Manner:
        """Record the real agent, in a container. Raises InfraError, SandboxError, AgentError if it can't work."""
        fitted = FittedFormat.of(tool_format, ChatTemplate(tokenizer))
        spec = SandboxSpec(await ensure_base_image(), workdir=WORKING_DIR)
        async with DockerBackend() as backend:
            seen = await rehearse(agent, backend, spec, fitted, _TASK, [_SILENT])
        first, *rest = seen.turns
        if not (rest and rest[0].parent is first and any(_TASK in message.text for message in first.given)):
            what = "does not tell its task as it is, or drops a reply that runs a command: its manner can't be learnt"
            raise InfraError(Failure.ENVIRONMENT, f"agent {agent.name} {what}")
        return cls(agent, first.given, first.request.tools, rest[0].given)

    def brief(self) -> Manner:
        """Return this manner without its text after the task before the first reply.

        No two tasks share those tokens, so they are the most of a transcript's cost."""
        place, message = next((place, message) for place, message in enumerate(self.opening) if _TASK in message.text)
        cut = replace(message, text=message.text.partition(_TASK)[0] + _TASK)
        return replace(self, opening=[*self.opening[:place], cut])

    def convert_reply(self, reply: Reply) -> Reply:
        """Return a reply of our own agent's as this one's: its calls are those of this agent's tools."""
        if not reply.calls or reply.calls[0].name not in TOOLS:
            return reply
        command = reply.calls[0].arguments.get("command") or (self.agent.submits and f"echo {self.agent.submits}")
        calls = (ToolCall(*self.agent.runs(command)),) if command else ()
        return replace(reply, content=reply.content if calls else "Done.", calls=calls)

    async def transcripts(
        self,
        tasks: Sequence[Example],
        tokenizer: Any,
        replies: Callable[[Example], Sequence[Reply | str]],
        tool_format: str = AUTO,
    ) -> AsyncIterator[SequenceData]:
        """Yield a row of tokens for each task, as `envs.lab.transcripts.transcripts`, but without running anything.

        Text after the first reply is there only if that reply runs the task's own command."""
        template = ChatTemplate(tokenizer)
        fitted = FittedFormat.of(tool_format, template)
        write = fitted.with_tools(self.tools).format.turn
        for task in tasks:
            first, last = (self.convert_reply(one) if isinstance(one, Reply) else one for one in replies(task))
            right = isinstance(first, Reply) and first.calls[0].arguments == self.agent.runs(task.command)[1]
            texts = [one if isinstance(one, str) else write(one) for one in (first, last)]
            server = ScriptedServer(texts, tokenizer)
            async with Session(server, template, fitted, AgentConfig(max_tokens=512)) as session:
                await _send(
                    session,
                    GatewayRequest([_replace_task(task, message) for message in self.opening], tools=self.tools),
                )
                if right:
                    answer = session.turns[0][1].answer
                    behind = [
                        replace(message, call_id=message.call_id and answer.calls[0].id) for message in self.behind
                    ]
                    await _send(session, GatewayRequest(behind, tools=self.tools, behind=answer.number))
                (row,) = (await session.result()).segments
            yield row


async def _send(session: Session, request: GatewayRequest) -> None:
    """Ask as the agent would, and take the answer."""
    turn = session.ask(request)
    if turn.work is not None:
        await turn.work
    turn.taken = True


def _replace_task(task: Example, message: HistoryMessage) -> HistoryMessage:
    return replace(message, text=message.text.replace(_TASK, task.instruction))
