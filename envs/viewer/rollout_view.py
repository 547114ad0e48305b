"""Show one rollout by itself: in full, with its place in its group."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from envs.records.detail import Detail, agent_of, detail_of, explanation_of
from envs.records.read import SavedRollout
from envs.runs.journal import SavedGroup
from envs.types import GroupState
from envs.viewer.states import meaning
from envs.viewer.tokens import advantage_of
from sandboxes.plurals import plural


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a rollout, beside the others. branch: the kind of its conversation. turns: those with replies in it.
    weights: the step of its oldest weights."""

    number: int
    branch: str
    tokens: int
    trained: int
    turns: Sequence[int]
    weights: int | None


@dataclass(frozen=True, slots=True)
class RolloutView:
    """A rollout. agent: its name, "" for ours. reasons: why it has its score, in sentences. counts: whether its group
    has it, and no other in its place."""

    rollout: SavedRollout
    agent: str
    detail: Detail
    explanation: str
    reasons: Sequence[str]
    lanes: Sequence[Lane]
    group: SavedGroup | None
    counts: bool


def build_view(rollout: SavedRollout, group: SavedGroup | None, place: int) -> RolloutView:
    """Return a rollout as it is shown. place: of its line."""
    result = rollout.result
    lanes = [
        Lane(
            position,
            row.branch,
            len(row.tokens),
            row.trained,
            [step.index + 1 for step in result.steps if step.segment == row.segment],
            row.policy_version,
        )
        for position, row in enumerate(result.segments)
    ]
    counts = group is None or any(member.place == place for member in group.members)
    reasons = list(_reasons(rollout, group, counts))
    why = explanation_of(rollout)
    return RolloutView(rollout, agent_of(rollout), detail_of(rollout), why, reasons, lanes, group, counts)


def _reasons(rollout: SavedRollout, group: SavedGroup | None, counts: bool) -> Sequence[str]:
    verdict, reward = rollout.verdict, rollout.reward
    passed = sum(status.value == "passed" for status in verdict.tests.values())
    found = [
        f"The verifier gave {verdict.reward:g}: {'solved' if verdict.solved else 'not solved'}"
        + (f", {passed} of {plural(len(verdict.tests), 'test')} passed." if verdict.tests else ".")
    ]
    if reward.value != verdict.reward or reward.explanation:
        found.append(f"In training it is worth {reward.value:g}: {reward.explanation or 'by the reward of its own'}.")
    if reward.turn_advantages:
        listed = ", ".join(f"{value:+g}" for value in reward.turn_advantages[:20])
        found.append(f"Turns have advantages of their own beside: {listed}.")
    if group is not None and not counts:
        found.append(f"Group {group.number} does not count this rollout: it has another in its place, or none yet.")
    elif group is not None and len(group.rewards) > 1:
        mean, spread = statistics.fmean(group.rewards), statistics.pstdev(group.rewards)
        listed = ", ".join(f"{value:g}" for value in group.rewards[:64])
        advantage = advantage_of(reward.value, group.rewards, group.estimator)
        worth = "" if advantage is None else f", so that its advantage is {advantage:+.3f} ({group.estimator.kind})"
        found.append(f"Its group has the rewards {listed}: mean {mean:.3f}, standard deviation {spread:.3f}{worth}.")
    if group is not None:
        why = (
            f" The journal says: {group.reason.rstrip('.')}."
            if group.reason and group.state != GroupState.WORKING
            else ""
        )
        found.append(f"Group {group.number} is {group.state}: {meaning(group.state)}{why}")
    return found
