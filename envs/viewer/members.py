"""Show a group's members side by side, in a line a turn."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.records.detail import Detail, agent_of, argument, detail_of, explanation_of
from envs.records.read import SavedRollout
from envs.runs.journal import Member, SavedGroup
from envs.runs.reading import NoRollout, read_rollout
from envs.viewer.tokens import advantage_of

logger = logging.getLogger(__name__)

FULL = 16
"""Members shown in full; the others show their rewards."""
_BRIEF = 160


@dataclass(frozen=True, slots=True)
class TurnLine:
    """A turn in a line. part: as in `Turn`. messages: the beginning of the messages before it. what: the calls, or the
    beginning of the reply. error: whether one of its results is one."""

    number: int
    part: str
    messages: Sequence[str]
    what: str
    error: bool


@dataclass(frozen=True, slots=True)
class SeatOf:
    """A member's place in its group. rollout: None for an unfinished or unreadable one; made: turns so far.
    agent: its name, "" for ours."""

    number: int
    member: Member | None
    made: int
    rollout: SavedRollout | None = None
    agent: str = ""
    detail: Detail | None = None
    explanation: str = ""
    turns: Sequence[TurnLine] = ()
    advantage: float | None = None


def seats_of(directory: Path, group: SavedGroup, size: int | None) -> list[SeatOf]:
    """Return the places of a group of `size`, or of as many as are known."""
    by_number = {member.member: member for member in group.members}
    known = max([size or 0, *(number + 1 for number in (*by_number, *group.making))])
    complete = group.state != "working" and len(group.rewards) > 1
    seats = []
    for number in range(known):
        member = by_number.get(number)
        if member is None or number >= FULL:
            seats.append(SeatOf(number, member, group.making.get(number, 0)))
            continue
        try:
            rollout = read_rollout(directory, member.place)
        except NoRollout as error:
            logger.warning("member %d of group %d: %s", number, group.number, error)
            seats.append(SeatOf(number, member, 0))
            continue
        advantage = advantage_of(rollout.reward.value, group.rewards, group.estimator) if complete else None
        whole, why = detail_of(rollout), explanation_of(rollout)
        agent = agent_of(rollout)
        seats.append(SeatOf(number, member, 0, rollout, agent, whole, why, list(_lines(whole)), advantage))
    return seats


def _lines(detail: Detail) -> list[TurnLine]:
    found = []
    for turn in detail.turns:
        calls = [
            f"{call.name} {' '.join(argument(value) for value in call.arguments.values())}"
            for call, _, _ in turn.exchanges
            if call is not None
        ]
        what = " · ".join(calls) or turn.step.content or turn.step.response
        failed = turn.step.correction is not None or any(error for _, _, error in turn.exchanges)
        messages = [f"{message['role']}: {_brief(str(message.get('content') or ''))}" for message in turn.step.said]
        found.append(TurnLine(turn.step.index + 1, turn.part, messages, _brief(what), failed))
    return found


def _brief(text: str) -> str:
    """Return the beginning of a text in one line."""
    return " ".join(text[: 10 * _BRIEF].split())[:_BRIEF]
