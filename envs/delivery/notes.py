"""Notes on disk about the trainer API, so the next start knows as much as this one.

The API keeps everything in memory and knows no message ids. Its answers, together with the earlier notes, show
whether it still is the known one, and whether a packet without a confirmation arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from envs.delivery.trainer_api import RegisteredEnv


@dataclass(frozen=True, slots=True)
class KnownAPI:
    """The API at the last contact.

    env_id, registrations: our id, and the API's count of this run's registrations. foreign: those of others before
    ours. batch: our packets that fill a batch. step, alone: by its last answer; whether it had no other environment.
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
    def from_registration(cls, answer: RegisteredEnv, batch: int) -> KnownAPI:
        """Return the facts of a registration."""
        foreign = answer.env_id - answer.earlier
        return cls(answer.env_id, answer.earlier + 1, foreign, batch, answer.starting_step)

    def matches(self, answer: RegisteredEnv) -> bool:
        """Tell whether the API behind a registration is this one: it remembers our earlier registrations
        and those of others."""
        return answer.earlier >= self.registrations and answer.env_id - answer.earlier >= self.foreign


@dataclass(frozen=True, slots=True)
class Attempt:
    """The known facts just before a packet is sent.

    env_id: its sender's. step: batches formed. queued: packets of ours in the queue. foreign: see `KnownAPI`.
    alone: whether no other environment was connected or had packets in the queue.
    """

    env_id: int
    step: int
    queued: int
    foreign: int
    alone: bool


def has_arrived(before: Attempt, now: Attempt, *, batch: int) -> bool | None:
    """Tell whether the one packet sent between two looks arrived, by the number of packets gone from the queue; None
    if unknown. batch: our packets that fill a batch.

    Batches alone take packets out of the queue. While no other environment fills them, each takes `batch` of ours.
    """
    formed = now.step - before.step
    if formed == 0 or now.queued > before.queued:
        return {0: False, 1: True}.get(now.queued - before.queued)
    if not (before.alone and now.alone and before.foreign == now.foreign):
        return None
    return {0: False, 1: True}.get(now.queued + formed * batch - before.queued)
