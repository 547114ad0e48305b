"""What is on disk about the trainer API, so that the next start knows what this one knew.

The API keeps everything in memory and knows no message ids. What it does tell, beside what was noted before, says
whether it still is the one that was known, and whether a packet arrived whose confirmation did not.
"""

from __future__ import annotations

from dataclasses import dataclass

from envs.delivery.trainer_api import Registered


@dataclass(frozen=True, slots=True)
class KnownAPI:
    """The API as it was known last.

    env_id, registrations: our id, and how many registrations of this run it counts. foreign: those of others before
    ours. batch: our packets that fill a batch. step, alone: as it said last; whether it had no other environment.
    leaving: former ids of ours that may still have weight.
    """

    env_id: int
    registrations: int
    foreign: int
    batch: int
    step: int = 0
    alone: bool = False
    leaving: tuple[int, ...] = ()

    @classmethod
    def met(cls, answer: Registered, batch: int) -> KnownAPI:
        """Return what a registration tells."""
        foreign = answer.env_id - answer.earlier
        return cls(answer.env_id, answer.earlier + 1, foreign, batch, answer.starting_step)

    def is_that_of(self, answer: Registered) -> bool:
        """Tell whether the API that answered a registration is this one: it remembers our earlier registrations
        and those of others."""
        return answer.earlier >= self.registrations and answer.env_id - answer.earlier >= self.foreign


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was known when a packet was about to be sent.

    env_id: under which. step: batches formed. queued: packets of ours in the queue. foreign: see `KnownAPI`.
    alone: whether no other environment was connected or had packets in the queue.
    """

    env_id: int
    step: int
    queued: int
    foreign: int
    alone: bool


def arrived(before: Attempt, now: Attempt, *, batch: int) -> bool | None:
    """Tell whether the one packet that was sent between two looks arrived, by what left the queue meanwhile; None when
    that can't be known. batch: our packets that fill a batch.

    Batches alone take packets out of the queue. While no other environment fills them, each takes `batch` of ours.
    """
    formed = now.step - before.step
    if formed == 0 or now.queued > before.queued:
        return {0: False, 1: True}.get(now.queued - before.queued)
    if not (before.alone and now.alone and before.foreign == now.foreign):
        return None
    return {0: False, 1: True}.get(now.queued + formed * batch - before.queued)
