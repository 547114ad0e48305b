"""Explain the states of a group, in a sentence each, and those of packets of rows."""

from __future__ import annotations

from envs.types import GroupState

_MEANINGS = {
    GroupState.WORKING: "not all of its rollouts are made; a later start of the run makes the others.",
    GroupState.OUTBOX: "it is complete, and its rows wait for the trainer API.",
    GroupState.DELIVERED: "the trainer API has its rows.",
    GroupState.TAKEN: "the trainer has it in memory, and has not confirmed it: a later start gives it again.",
    GroupState.CONFIRMED: "the trainer has confirmed that it is done with it.",
    GroupState.SAVED: "it is written to the file of groups; no trainer was asked for.",
    GroupState.EQUAL: "dropped, because rewards that are all equal teach nothing: every advantage would be 0.",
    GroupState.EMPTY: "dropped, because no row of it was sound.",
    GroupState.STALE: "kept aside, because the trainer had gone on too far when it was to be sent.",
    GroupState.REFUSED: "kept aside, because the trainer API did not take it.",
    GroupState.UNCERTAIN: "kept aside, because the trainer API has lost it, perhaps after a batch had it.",
    GroupState.CORRUPT: "kept aside, because what is on disk is damaged.",
    GroupState.QUARANTINED: "not completed: its task had too many infrastructure failures.",
    GroupState.SKIPPED: "not begun: its task had been quarantined before.",
    GroupState.GONE: "not completed: its task is not among those of the run any more.",
}
_PACKETS = {
    "waiting": "waiting for more rows",
    "ready": "to be sent",
    "sending": "on the way",
    "queued": "in the trainer API's queue, in no batch of the trainer's",
    "batched": "in batches that the trainer API holds",
}
GOOD = (GroupState.DELIVERED, GroupState.CONFIRMED, GroupState.SAVED)
OPEN = (GroupState.WORKING, GroupState.OUTBOX, GroupState.TAKEN)


def meaning(state: str) -> str:
    """Return the meaning of a state; "" for an unknown one."""
    return _MEANINGS.get(GroupState(state), "") if state in set(GroupState) else ""


def packets(state: str) -> str:
    """Return where packets of a state of the outbox are; the state itself for an unknown one."""
    return _PACKETS.get(state, state)


def tone(state: str) -> str:
    """Return how a state is coloured: good, open or bad."""
    return "good" if state in GOOD else "open" if state in OPEN else "bad"
