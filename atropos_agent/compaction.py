"""Shorten a conversation when it grows too long for the model: policies, each a function of `Turns`.

A policy is called before each reply. One of your own is such a function, or an agent written so
(`examples/compacts.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from atropos_agent.harvest import MASKED_SUMMARY, UNUSED_SUMMARY
from atropos_agent.turns import Turns
from atropos_agent.types import AgentConfig, Branch, Message, StopReason

VERSION = "1"
"""Version of the texts below: it distinguishes rollouts made with different texts."""
SUM_UP = (
    "Little room is left in this conversation. Sum up for yourself what you have found and done, which files matter, "
    "and what is left to do. The summary replaces the conversation; call no tool."
)
SUMMED_UP = "The conversation until now was replaced by your own summary of it:\n\n{summary}\n\nGo on with the task."
TAKE_NOTES = (
    "Little room is left in this conversation, and it begins again after your next reply. Write all that you need into "
    "the file NOTES.md now."
)
NOTED = "You have worked on this task before. Your notes are in the file NOTES.md: read it first, then go on."
CUT = "\n[{count} characters were cut out here]\n"

KEPT_TURNS = 2
"""The number of last turns left alone by every policy, except one that begins again."""
KEPT_CHARACTERS = 400
"""Characters kept of an old result, half from its beginning and half from its end."""
REPLY_TOKENS = 1024
"""A reply's length if its configuration leaves this to the inference server."""

Policy = Callable[[Turns], Awaitable[None]]


async def none(turns: Turns) -> None:
    """Leave the conversation as it is: it ends when there is no room."""


async def cut(turns: Turns) -> None:
    """Cut old results to their ends."""
    turns.restart(turns.task, keep=None, edit=_cut)


async def summary(turns: Turns) -> None:
    """Have the model sum up, and go on from the task, the summary and the last turns.

    An unusable summary, empty or cut off, is not trained: old results are cut instead."""
    branch = turns.fork(Branch.SUMMARY)
    branch.add(SUM_UP)
    reply = await branch.reply(max_tokens=_reply_tokens(turns) // 2)
    if branch.ended is not StopReason.ANSWERED or not reply.content.strip():
        branch.leave_out(UNUSED_SUMMARY)
        await cut(turns)
        return
    if not turns.ledger.sampler.config.trains_summaries:
        branch.leave_out(MASKED_SUMMARY)
    opening = {"role": "user", "content": SUMMED_UP.format(summary=reply.content.strip())}
    turns.restart([*turns.task, opening], keep=KEPT_TURNS)


async def notes(turns: Turns) -> None:
    """Have the model write notes into a file by its own tools, and begin again."""
    turns.add(TAKE_NOTES)
    reply = await turns.reply()
    await turns.execute(reply.calls)
    if turns.ended in (None, StopReason.ANSWERED):
        turns.restart([*turns.task, {"role": "user", "content": NOTED}])


POLICIES: Mapping[str, Policy] = MappingProxyType({"none": none, "cut": cut, "summary": summary, "notes": notes})


def policy_of(config: AgentConfig, turns: Turns) -> Policy:
    """Return the configured policy, for a conversation.

    It acts if there is less room than for two replies, and not before more than `KEPT_TURNS` replies have come since
    it acted last."""
    if config.compaction == "none":
        return none
    act, acted_at = POLICIES[config.compaction], turns.replies

    async def compact(turns: Turns) -> None:
        nonlocal acted_at
        room = turns.room()
        if room is None or room >= 2 * _reply_tokens(turns) or turns.replies - acted_at <= KEPT_TURNS:
            return
        await act(turns)
        acted_at = turns.replies
        if (after := turns.room()) is not None:
            turns.ledger.note_compaction(VERSION, saved=max(0, after - room))

    return compact


def _reply_tokens(turns: Turns) -> int:
    return turns.ledger.sampler.config.max_tokens or REPLY_TOKENS


def _cut(message: Message) -> Message:
    """Return a result cut to its ends; a reply stays as it is."""
    content, half = message["content"] or "", KEPT_CHARACTERS // 2
    if message["role"] == "assistant" or len(content) <= 2 * KEPT_CHARACTERS:
        return message
    return {**message, "content": content[:half] + CUT.format(count=len(content) - 2 * half) + content[-half:]}
