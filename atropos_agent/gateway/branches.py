"""Classify the parts of a rollout's forest, and choose the trained ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from atropos_agent.gateway.echo import pair_results, same_messages
from atropos_agent.gateway.forest import Forest, Line, SampledReply, Turn
from atropos_agent.gateway.requests import HistoryMessage
from atropos_agent.gateway.summaries import Compactions, find_shortened
from atropos_agent.harvest import MASKED_SUMMARY, UNUSED_SUMMARY, HarvestedReply
from atropos_agent.harvest import harvest as rows_of
from atropos_agent.types import AgentStep, Branch, Exchange, SequenceData
from tools.base import ToolResult

TRAINED = frozenset({Branch.MAIN, Branch.SUB_AGENT, Branch.SUMMARY, Branch.RETRY})
"""The kinds trained by default: the replies the agent acted on. Side calls say little of the task, and weigh as much a
token."""


@dataclass(frozen=True, slots=True)
class Harvest:
    """The rows and steps of a forest.

    rows: the main conversation's first. main: the turns of the main conversation. record: with untrained replies
    marked.
    branches: how many replies there are of each kind. untrained: tokens left out of training, by reason.
    shortened: how often the agent made its conversation shorter.
    """

    rows: Sequence[SequenceData]
    steps: Sequence[AgentStep]
    record: Sequence[Exchange]
    main: Sequence[Turn]
    branches: Mapping[str, int]
    untrained: Mapping[str, int]
    shortened: Compactions


def harvest(
    forest: Forest, record: Sequence[Exchange], trained: Collection[Branch], *, trains_summaries: bool = True
) -> Harvest:
    """Return the rows and steps of everything sampled. record: of all requests. trained: the kinds to train.
    trains_summaries: as in `AgentConfig`."""
    turns = forest.turns
    kinds = branches_of(forest)
    shortened = find_shortened(forest, kinds)
    kinds |= dict.fromkeys(shortened.used, Branch.SUMMARY)
    left_out = {kind: kind.value for kind in Branch if kind not in trained}
    if not trains_summaries:
        left_out.setdefault(Branch.SUMMARY, MASKED_SUMMARY)
    why = {turn: left_out.get(kind, "") for turn, kind in kinds.items()}
    why |= {turn: why[turn] or UNUSED_SUMMARY for turn in shortened.unused}
    lines: dict[Line, list[Turn]] = {}
    for turn, _ in turns:
        lines.setdefault(turn.line, []).append(turn)
    ordered = sorted(lines, key=lambda line: all(kinds[turn] is not Branch.MAIN for turn in lines[line]))
    results = _find_results(forest)
    taken = {
        turn: _harvest_reply(turn, sampled, results.get(turn, ()), kinds[turn], why[turn]) for turn, sampled in turns
    }
    paths = [(line.conversation, [taken[turn] for turn in lines[line][-1].path if turn in taken]) for line in ordered]
    found = rows_of(paths, record)
    last = next((turn for turn, _ in reversed(turns) if kinds[turn] is Branch.MAIN), None)
    main = [] if last is None else [turn for turn in last.path if kinds[turn] is not Branch.UNTAKEN]
    counted = Counter(kind.value for kind in kinds.values())
    return Harvest(found.rows, found.steps, found.record, main, dict(counted), found.untrained, shortened)


def branches_of(forest: Forest) -> dict[Turn, Branch]:
    """Return the kind of each reply."""
    turns = [turn for turn, _ in forest.turns]
    roots = {turn: turn.path[0] for turn in turns}
    answers = Counter(roots.values())
    tooled = [root for root in forest.roots if root.request.tools and root in answers]
    # An agent without tools talks most in its own conversation.
    first = tooled[0] if tooled else max(answers, key=lambda root: answers[root], default=None)
    found: dict[Turn, Branch] = {}
    for turn in turns:
        if not turn.taken and not turn.children:
            found[turn] = Branch.UNTAKEN
        elif _is_given_up(turn, forest):
            found[turn] = Branch.RETRY
        else:
            found[turn] = _kind_of(roots[turn], first)
    return found


def _kind_of(root: Turn, main: Turn | None) -> Branch:
    if main is None or root is main or _same_head(root, main):
        return Branch.MAIN
    if root.request.tools:
        # Tools that change in mid-conversation change the whole prompt.
        return Branch.MAIN if root.retells else Branch.SUB_AGENT
    return Branch.SUMMARY if root.retells else Branch.SIDE


def _same_head(root: Turn, main: Turn) -> bool:
    return root.request.toolset == main.request.toolset and same_messages(_head(root.given), _head(main.given))


def _head(messages: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    """Return the system messages at the beginning of messages."""
    end = next((place for place, message in enumerate(messages) if message.role != "system"), len(messages))
    return list(messages[:end])


def _is_given_up(turn: Turn, forest: Forest) -> bool:
    """Tell whether the agent sent the same request again, and the work went on from the other reply or from none."""
    if turn.children:
        return False
    beside = [
        other
        for other in (forest.roots if turn.parent is None else turn.parent.children)
        if other.sampled and other.request.toolset == turn.request.toolset and same_messages(other.given, turn.given)
    ]
    return any(other.children for other in beside) or beside.index(turn) < len(beside) - 1


def _harvest_reply(
    turn: Turn, sampled: SampledReply, results: Sequence[ToolResult], kind: Branch, untrained: str
) -> HarvestedReply:
    user_messages = [
        {"role": "user", "content": message.text}
        for message in _messages_after_replies(turn.given)
        if message.role == "user"
    ]
    step = replace(sampled.step, results=tuple(results), said=user_messages if sampled.step.index else ())
    return HarvestedReply(step, sampled.exchange, kind.value, untrained)


def _messages_after_replies(given: Sequence[HistoryMessage]) -> Sequence[HistoryMessage]:
    """Return the messages after the last reply: a history that is not ours is context."""
    return given[_place_after_replies(given) :]


def _place_after_replies(given: Sequence[HistoryMessage]) -> int:
    return next((place for place in range(len(given), 0, -1) if given[place - 1].role == "assistant"), 0)


def _find_results(forest: Forest) -> Mapping[Turn, Sequence[ToolResult]]:
    """Return the results of replies' calls as the agent sent them where it went on, also in a history begun again."""
    found: dict[Turn, Sequence[ToolResult]] = {}
    for turn, _ in forest.turns:
        given = turn.request.messages
        place = _place_after_replies(given)
        before = turn.parent or (forest.find_turn(given[place - 1]) if place else None)
        if before is None or before.sampled is None or (turn.parent is None and before in found):
            continue
        pairs = pair_results(given[place:], given[place - 1], before.sampled.answer)
        results = [(message.text, call) for message, call in pairs if message.role == "tool"]
        found[before] = [ToolResult(text, call=None if call is None else call.call) for text, call in results]
    return found
