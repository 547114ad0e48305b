"""`doctor`'s look at where a foreign agent makes room: the real one works until its window is full."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from atropos_agent.fitted import FittedFormat
from atropos_agent.types import AgentConfig, AgentResult, Branch, Reply, StopReason
from envs.agents.facts import ForeignAgent
from envs.agents.rehearsal import Policy, reply_opening, run_policy, shell_pattern
from envs.cli.checks import Check, Status
from sandboxes.base import Backend, SandboxSpec
from tools.base import ToolCall

TASK = "Print many lines, and look at all of them."
_LINE = "the quick brown fox jumps over the lazy dog"
_SUMMARY = "Many lines were printed and looked at, as the task says.\nWhat is left is to print the others."
_TURNS = 60
_ASKS = re.compile("summar|condens|compact|hand.?off", re.IGNORECASE)
"""Words after the last output with which agents ask for a summary."""
_LEAST, _MOST = 300, 5000
"""Tokens of an output; agents cut longer ones."""


async def examine_room(
    agent: ForeignAgent,
    backend: Backend,
    spec: SandboxSpec,
    fitted: FittedFormat,
    budgets: AgentConfig,
    opening: int,
) -> Check:
    """Tell where an agent makes its conversation shorter, within these budgets. opening: tokens of its first prompt.

    Raises InfraError, SandboxError and AgentError if it can't be tried."""
    window = budgets.max_total_tokens or 0
    config = replace(budgets, max_steps=_TURNS, max_seconds=300.0)
    tokens = min(_MOST, max(_LEAST, (window - opening) // 6))
    seen = await run_policy(agent, backend, spec, fitted, TASK, _make_policy(agent, fitted, tokens), config)
    result = seen.result
    compaction = result.metadata["gateway"].get("compaction", {})
    if compaction.get("count"):
        at = _filled_tokens(result)
        text = f"{agent.name} makes room at {at:,} of {window:,} tokens, and saves about {compaction['tokens_saved']:,}"
        how = "by a summary" if compaction["summaries"] else "without a summary"
        data = {"at": at, "window": window, "tokens_saved": compaction["tokens_saved"]}
        return Check("agent's room", Status.OK, f"{text}, {how}", data)
    full = max((step.prompt_tokens + step.completion_tokens for step in result.steps), default=0)
    data = {"at": None, "window": window, "tokens_saved": 0}
    if result.stop_reason is StopReason.MAX_TOKENS:
        text = f"{agent.name} makes no room in {window:,} tokens: a rollout that needs more ends there, and is graded"
    else:
        text = f"{agent.name} made no room in {full:,} of {window:,} tokens, and ended as {result.stop_reason}"
    return Check("agent's room", Status.NOTE, f"{text} (docs/compaction.md)", data)


def _filled_tokens(result: AgentResult) -> int:
    """Return the tokens at which the conversation was first made shorter."""
    main = [step for step in result.steps if step.branch == Branch.MAIN]
    ends = [step.prompt_tokens + step.completion_tokens for step in main]
    again = next((place for place in range(1, len(main)) if main[place].segment != main[place - 1].segment), len(main))
    return max(ends[:again], default=0)


def _make_policy(agent: ForeignAgent, fitted: FittedFormat, tokens: int) -> Policy:
    """Return the replies: outputs of about so many tokens until a summary is requested, and the end after it."""
    line = 1 + (len(fitted.template.encode(_LINE)) if fitted.template is not None else 10)
    call = agent.runs(f"yes '{_LINE}' | head -n {tokens // line}")
    shows, printed = shell_pattern(agent), 0

    def reply(prompt: Sequence[int]) -> str:
        nonlocal printed
        shown = "" if fitted.template is None else fitted.template.decode(list(prompt))
        opened = reply_opening(shown)
        if _SUMMARY.splitlines()[0] in shown:
            return f"{opened}Done."
        if not shows.search(shown) and not printed:
            return f"{opened}A title"
        if printed and _ASKS.search(shown.rpartition(_LINE)[2]):
            return opened + _SUMMARY
        printed += 1
        return opened + fitted.format.turn(Reply(None, "", [ToolCall(*call, "call_0")], []))

    return reply
