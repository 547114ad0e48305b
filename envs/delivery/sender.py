"""Packets from the outbox to the trainer API: confirmed, in order, once.

What the API says decides. It names an environment after its run, with a number that counts the
earlier registrations of that run: 0 tells that the API was restarted or emptied. It tells
which group it stored last, so that a packet whose confirmation was lost is not sent again. And it
tells how many of our packets are in its queue, so that those it loses in a restart are known.

Nothing is sent before the API knows a trainer: groups that arrive earlier wedge it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from envs.delivery.packing import Packet
from envs.delivery.trainer_api import TrainerAPI, TrainerAPIError
from envs.records.metrics import Metrics
from envs.types import Failure, GroupState
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)


class Outbox(Protocol):
    """Packets that wait to be sent, and those that the API may still lose."""

    changed: asyncio.Event
    """Set when a packet has become ready to be sent."""

    async def next_ready(self) -> Packet | None:
        """Return the oldest packet that is to be sent."""
        ...

    async def confirm(self, packet: Packet) -> None:
        """Note that the API has taken a packet."""
        ...

    async def handed_on(self, *, left: int) -> None:
        """Forget the packets that are no longer in the API's queue, which holds at most `left` of ours."""
        ...

    async def lost_by_api(self, *, batch: int) -> tuple[int, int]:
        """Send again what the API has lost, or keep it aside; returns how many of both."""
        ...

    async def put_aside(self, packet: Packet, state: GroupState, reason: str) -> None:
        """Keep a packet in a file of its own and never send it."""
        ...

    async def environment_id(self, new: int) -> int | None:
        """Return the id under which the API knew us before, and keep the `new` one."""
        ...


@dataclass(frozen=True, slots=True)
class Registration:
    """How an environment registers. name: the run's own, see the module's docstring."""

    name: str
    max_token_length: int
    weight: float
    group_size: int


class Sender:
    """The run's side of the trainer API: registers, sends what is ready, keeps `status` up to date.

    max_stale: steps that the trainer may have gone on since a packet was made; older ones are put aside.
    """

    poll_s = 1.0
    longest_pause_s = 8.0
    remind_s = 15.0

    def __init__(
        self, api: TrainerAPI, outbox: Outbox, metrics: Metrics, registration: Registration, *, max_stale: int
    ) -> None:
        self._api = api
        self._outbox = outbox
        self._metrics = metrics
        self._registration = registration
        self._max_stale = max_stale
        self._registered = False
        self._unsure: str | None = None
        """Name of the packet whose last try may have been stored."""
        self._reminded = -self.remind_s
        self.env_id = -1
        self.batch_size = -1
        self.max_token_len = -1
        """Longest row that the trainer takes is shorter than this; not positive for no limit."""
        self.answer: dict[str, Any] = {}
        """What the API said when we registered."""
        self.status: dict[str, Any] = {}

    async def connect(self) -> None:
        """Register, waiting for the API and the trainer. Raises ValueError when groups would never fill a batch."""
        batch_size, self.max_token_len = await self._api.info()
        size = self._registration.group_size
        if size > batch_size or batch_size % size:
            raise ValueError(
                f"group_size ({size}) must divide the trainer's batch_size ({batch_size}), or its batches "
                "never fill; set --env.group_size"
            )
        self.batch_size = batch_size
        self.answer = await self._api.register(
            name=self._registration.name,
            max_token_length=self._registration.max_token_length,
            weight=self._registration.weight,
            group_size=size,
        )
        self.env_id = int(self.answer["env_id"])
        await self._compare_notes(again=int(self.answer["wandb_name"].rpartition("_")[2]) > 0)
        self.status = await self._api.status(self.env_id)
        self._registered = True
        logger.info("registered with the trainer API as environment %d, step %d", self.env_id, self.step)

    @property
    def step(self) -> int:
        """The trainer's, as the API counts: batches formed."""
        return int(self.status["current_step"])

    async def run(self) -> None:
        """Send what becomes ready, for ever."""
        pause = 0.0
        while True:
            try:
                sent = await self._look()
            except httpx.HTTPError as error:
                pause = min(self.longest_pause_s, 2 * pause or 0.5)
                if isinstance(error, httpx.ConnectError):
                    self._registered = False  # what answers next may have been restarted
                self._metrics.count_failure(Failure.TRAINER)
                if time.monotonic() - self._reminded > self.remind_s:
                    self._reminded = time.monotonic()
                    logger.warning("the trainer API failed (%s: %s); trying again", type(error).__name__, error)
                await asyncio.sleep(pause)
                continue
            pause = 0.0
            if not sent:
                try:
                    async with asyncio.timeout(self.poll_s):
                        await self._outbox.changed.wait()
                except TimeoutError:
                    continue

    async def leave(self) -> None:
        """Tell the API that we go."""
        if self._registered:
            try:
                await self._api.disconnect(self.env_id)
            except httpx.HTTPError as error:
                logger.debug("the trainer API was not told that we leave: %s", error)

    async def _look(self) -> bool:
        """Look at the API's state and send a packet. Returns whether there was one."""
        if not self._registered:
            await self.connect()
        self._outbox.changed.clear()
        try:
            self.status = await self._api.status(self.env_id)
        except httpx.HTTPStatusError:
            self._registered = False  # it does not know us
            raise
        await self._outbox.handed_on(left=int(self.status["self_queue_size"]))
        packet = await self._outbox.next_ready()
        if packet is None:
            return False
        age = self.step - packet.step
        if age > self._max_stale:
            await self._put_aside(packet, GroupState.STALE, f"it is {age} steps old")
            return True
        if self._unsure != packet.name or await self._api.latest() != packet.name:
            try:
                await self._api.send(self.env_id, packet.body)
            except TrainerAPIError as error:
                await self._put_aside(packet, GroupState.REFUSED, str(error))
                return True
            except httpx.ConnectError:
                raise
            except httpx.HTTPError:
                self._unsure = packet.name
                raise
        await self._outbox.confirm(packet)
        self._metrics.count_sent()
        return True

    async def _put_aside(self, packet: Packet, state: GroupState, why: str) -> None:
        async def move() -> None:
            await self._outbox.put_aside(packet, state, why)
            self._metrics.count_failure(Failure.TRAINER)
            logger.error("packet %d is not sent but kept in aside/: %s", packet.id, why)

        await finish(move())  # what is kept aside is counted, also at the end of a run

    async def _compare_notes(self, *, again: bool) -> None:
        """Find out what the API still has of what it took. again: it knows this run."""
        former = await self._outbox.environment_id(self.env_id)
        if again:
            if former is not None:
                await self._api.disconnect(former)
            await self._outbox.handed_on(left=0)  # under the former id they are not counted any more
            return
        # Beside other environments a batch may hold any number of our packets.
        alone = self.status.get("env_weight", 0.0) > 0.999
        batch = self.batch_size // self._registration.group_size if alone else 1
        sent_again, uncertain = await self._outbox.lost_by_api(batch=batch)
        if sent_again or uncertain:
            logger.warning(
                "the trainer API has lost its queue: %d of our packets are sent again; %d, which may have been in "
                "a batch, are kept in aside/",
                sent_again,
                uncertain,
            )
