"""Dialogues in which a foreign agent makes room, as the real one has them.

The agent works once, in a container, on a task with a scripted policy. Its prompts are refused wherever the window is
to be full, so it asks for a summary and continues from it. Its requests are then given to the gateway's own code with
other texts in place of the scripted ones, so the tokens are those of real rollouts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atropos_agent.engines.errors import ContextOverflow
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import AUTO
from atropos_agent.gateway import Session
from atropos_agent.gateway.forest import Turn
from atropos_agent.gateway.requests import GatewayRequest, HistoryMessage
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, Reply, SequenceData
from envs.agents.facts import ForeignAgent
from envs.agents.rehearsal import run_policy, shell_pattern
from envs.lab.synthetic import WORKING_DIR
from envs.types import Failure, InfraError
from sandboxes.base import SandboxSpec
from sandboxes.docker.backend import DockerBackend
from sandboxes.docker.images.base_image import ensure_base_image
from tools import ToolCall

_DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
_CONFIG = AgentConfig(max_steps=50, max_total_tokens=200_000, max_tokens=512, max_seconds=120.0)


@dataclass(frozen=True, slots=True)
class Script:
    """The texts of a rollout that are not the agent's own.

    commands, with their outputs: of the work. summaries: replies to requests without tools. date: in place of the
    day's; "" for that."""

    task: str
    commands: Sequence[str]
    outputs: Sequence[str]
    summaries: Sequence[str]
    date: str = ""

    @property
    def texts(self) -> list[str]:
        """Return the texts that the agent repeats."""
        return [self.task, *self.outputs, *self.summaries]


@dataclass(frozen=True, slots=True)
class RecordedRollout:
    """An agent's requests in a rollout with this script, in their order."""

    agent: ForeignAgent
    script: Script
    turns: Sequence[Turn]

    @classmethod
    async def record(
        cls, agent: ForeignAgent, tokenizer: Any, script: Script, files: Mapping[str, str], full: Sequence[int]
    ) -> RecordedRollout:
        """Record the real agent. files: of the task. full: numbers of commands after which its window is full.

        Raises InfraError, SandboxError, AgentError if it can't work, or makes no room."""
        template = ChatTemplate(tokenizer)
        fitted = FittedFormat.of(AUTO, template)
        shows, overflows = shell_pattern(agent), [*full]
        works, sums = _replies(agent, fitted, script)

        def reply(prompt: Sequence[int]) -> str:
            if not shows.search(template.decode(list(prompt))):
                return sums.pop(0)
            if overflows and len(script.commands) + 1 - len(works) == overflows[0]:
                raise ContextOverflow(f"full after command {overflows.pop(0)}")
            return works.pop(0)

        spec = SandboxSpec(await ensure_base_image(), workdir=WORKING_DIR)
        async with DockerBackend() as backend:
            seen = await run_policy(agent, backend, spec, fitted, script.task, reply, _CONFIG, files)
        if works or sums or not seen.result.success:
            what = f"ended as {seen.result.stop_reason}, with {len(works)} replies and {len(sums)} summaries left"
            raise InfraError(Failure.ENVIRONMENT, f"agent {agent.name} {what}: its manner to make room can't be learnt")
        return cls(agent, script, seen.every)

    async def rows(self, script: Script, tokenizer: Any, parts: int) -> Sequence[SequenceData]:
        """Return the rows of a rollout with another script.

        parts: it ends with the first reply of this one; 0 for a whole one."""
        template = ChatTemplate(tokenizer)
        fitted = FittedFormat.of(AUTO, template)
        texts = dict(zip(self.script.texts, script.texts, strict=True))
        works, sums = _replies(self.agent, fitted, script)
        replies = [(works if turn.request.tools else sums).pop(0) for turn in self.turns]
        played: dict[Turn, Turn] = {}
        async with Session(ScriptedServer(replies, tokenizer), template, fitted, _CONFIG) as session:
            for turn in self.turns:
                given, behind = [_replace_texts(one, texts, script.date) for one in turn.given], None
                if turn.parent is not None and (before := played[turn.parent].sampled) is not None:
                    given = [replace(one, call_id=one.call_id and before.answer.calls[0].id) for one in given]
                    behind = before.answer.number
                replayed = session.ask(GatewayRequest(given, tools=turn.request.tools, behind=behind))
                if replayed.work is not None:
                    await replayed.work
                replayed.taken, played[turn] = True, replayed
                parts -= turn.parent is None and bool(turn.request.tools)
                if not parts:
                    break
            return (await session.result()).segments


def _replies(agent: ForeignAgent, fitted: FittedFormat, script: Script) -> tuple[list[str], list[str]]:
    """Return the replies where tools are shown, and the others."""
    calls = [Reply(None, "", [ToolCall(*agent.runs(command), "call_0")], []) for command in script.commands]
    return [*map(fitted.format.turn, calls), "Done."], [*script.summaries]


def _replace_texts(message: HistoryMessage, texts: Mapping[str, str], date: str) -> HistoryMessage:
    text = _DATE.sub(date, message.text)
    for old, new in texts.items():
        text = text.replace(old, new)
    return replace(message, text=text)
