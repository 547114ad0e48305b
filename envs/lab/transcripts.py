"""Transcripts of attempts at made-up tasks, in the tokens of real rollouts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import AUTO
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, Reply, SequenceData
from envs.lab.synthetic import TOOLS, WORKING_DIR, Example, expert_replies
from sandboxes.base import Sandbox, SandboxSpec
from sandboxes.local import LocalBackend
from tools import default_tools


async def transcripts(
    tasks: Sequence[Example],
    tokenizer: Any,
    replies: Callable[[Example], Sequence[Reply | str]] = expert_replies,
    tool_format: str = AUTO,
) -> AsyncIterator[SequenceData]:
    """Yield a row of tokens for each task: its prompt, the replies and the tools' real results.

    Only the replies are trained. replies: as text if they are not well-formed. tool_format: as `--env.tool_format`.
    Raises RuntimeError when an expert's solution fails."""
    template = ChatTemplate(tokenizer)
    fitted = FittedFormat.of(tool_format, template)
    async with LocalBackend(own_commands=True) as backend:
        for task in tasks:
            async with backend.open(SandboxSpec("", workdir=WORKING_DIR)) as sandbox:
                await _prepare(task, sandbox)
                tools = default_tools(sandbox, TOOLS)
                write = fitted.with_tools(tools.schemas).format.turn
                texts = [reply if isinstance(reply, str) else write(reply) for reply in replies(task)]
                server = ScriptedServer(texts, tokenizer)
                config = AgentConfig(working_dir=WORKING_DIR, max_tokens=512)
                agent = AtroposAgent(server, tools, config, template=template, tool_format=fitted)
                result = await agent.run(task.instruction)
                for output in result.steps[0].results if replies is expert_replies else ():
                    if output.metadata["exit_code"] != 0:
                        raise RuntimeError(f"{task.command!r} failed for {task.instruction!r}: {output.content}")
                (row,) = result.segments
                yield row


async def _prepare(task: Example, sandbox: Sandbox) -> None:
    for name, text in task.files.items():
        await sandbox.write_file(name, text.encode())
