"""Find where an agent has made its conversation shorter, and the summaries from which it went on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atropos_agent.gateway.forest import Forest, Turn, begins
from atropos_agent.gateway.requests import HistoryMessage
from atropos_agent.types import Branch

_WORDS = 20
"""Characters of a line that two texts hardly share by chance."""
_LINES = 32
"""The most lines of a summary to look for, the longest ones."""


@dataclass(slots=True)
class Compactions:
    """An agent's compactions.

    count: how often its own conversation went on shorter. saved: by how many tokens, about. used: the summaries it went
    on from, whichever way it requested them. unused: those it did not go on from."""

    count: int = 0
    saved: int = 0
    used: set[Turn] = field(default_factory=set)
    unused: set[Turn] = field(default_factory=set)


def find_shortened(forest: Forest, kinds: Mapping[Turn, Branch]) -> Compactions:
    """Return the compactions in a rollout's conversations. kinds: of their replies."""
    found = Compactions()
    beside: list[Turn] = []
    """Replies without tools since the last one of the main conversation."""
    last: Turn | None = None
    for turn, _ in forest.turns:
        if kinds[turn] in (Branch.SUMMARY, Branch.SIDE):
            beside.append(turn)
        elif kinds[turn] is Branch.MAIN:
            summaries = [one for one in beside if kinds[one] is Branch.SUMMARY]
            if last is None or turn.parent is last:
                found.unused |= {one for one in summaries if _is_unusable(one) and not _quotes(turn, one, kinds[one])}
            else:
                _note_restart(found, turn, last, beside, kinds)
            last, beside = turn, []
    found.unused -= found.used
    return found


def _note_restart(
    found: Compactions, turn: Turn, last: Turn, beside: Sequence[Turn], kinds: Mapping[Turn, Branch]
) -> None:
    """Note how the main conversation goes on in a turn that is not after its last one."""
    # A summary may be requested with tools, as the next turn of the conversation.
    candidates = [*beside, *([last] if _may_be_summary(last) else [])]
    used = {one for one in candidates if _quotes(turn, one, kinds[one])}
    saved = max([_tokens(last, reply=True), *map(_tokens, used)]) - _tokens(turn)
    dropped = turn.parent is last.parent and begins(turn.given, last.given)
    cut = turn.parent is None and turn.retells and saved > 0 and not dropped
    if used or cut:
        found.count += 1
        found.saved += max(0, saved)
        found.used |= used
    if turn.parent is None and not used:
        found.unused |= {one for one in beside if kinds[one] is Branch.SUMMARY}


def _may_be_summary(turn: Turn) -> bool:
    return turn.sampled is not None and not turn.children and not turn.sampled.answer.calls


def _is_unusable(turn: Turn) -> bool:
    """Tell whether nobody can go on from a reply: it is empty, cut off, or a call."""
    if turn.sampled is None:
        return True
    answer = turn.sampled.answer
    called = answer.calls or turn.line.fitted.format.parse(answer.content).calls  # without tools a call is text
    return not answer.content.strip() or bool(called) or answer.finish_reason == "length"


def _tokens(turn: Turn, *, reply: bool = False) -> int:
    """Return the tokens of a turn's prompt, with its reply if requested."""
    if turn.sampled is None:
        return 0
    return turn.sampled.step.prompt_tokens + turn.sampled.step.completion_tokens * reply


def _quotes(turn: Turn, summary: Turn, kind: Branch) -> bool:
    """Tell whether a turn is given words of a reply that were not there when it was requested.

    Agents put a summary among words of their own, and leave parts of it out."""
    reply = "" if summary.sampled is None else summary.sampled.answer.content.strip()
    lines = sorted({line.strip() for line in reply.splitlines()}, key=len, reverse=True)
    long = [line for line in lines if len(line) >= _WORDS][:_LINES]
    if not long and kind is not Branch.SUMMARY:
        return False  # a title may be anywhere
    known = _text([message for one in summary.path for message in one.given])
    given = _text([message for message in turn.given if kind is Branch.SUMMARY or message.role != "assistant"])
    return any(line in given and line not in known for line in long or [reply] if line)


def _text(messages: Sequence[HistoryMessage]) -> str:
    return "\n".join(message.text for message in messages)
