"""Groups from the journal's spool to the trainer API: confirmed, in order, once.

What the API says decides. It names an environment after its run, with a number that counts the
earlier registrations of that run: 0 tells that the API was restarted or emptied. It tells
which group it stored last, so that a group whose confirmation was lost is not sent again. And it
tells how many of our groups are in its queue, so that those it loses in a restart are known.

Nothing is sent before the API knows a trainer: groups that arrive earlier wedge it.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from envs.delivery.rows import Group, Packer
from envs.delivery.trainer_api import TrainerAPI, TrainerAPIError
from envs.records.metrics import Metrics
from envs.running.journal import Journal, Packet
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)


class Parcels:
    """Puts groups into packets of exactly `size` rows, the only size that the API never holds back.

    waiting: single rows that were left over before.
    """

    def __init__(self, size: int, waiting: Sequence[Packet] = ()) -> None:
        self._packer = Packer(size)
        self._numbers: dict[str, int] = {}
        for packet in waiting:
            row = _unpack(packet)
            self._packer.waiting.append(row)
            self._numbers |= dict.fromkeys(row["generation_params"]["rollout_ids"], next(iter(packet.rows)))

    def add(self, number: int, group: Group, *, step: int) -> tuple[list[Packet], list[Packet]]:
        """Packets that can be sent now, and single rows that wait for others; both are to be journalled."""
        self._numbers |= dict.fromkeys(group["generation_params"]["rollout_ids"], number)
        packets = [self._pack(full, step) for full in self._packer.add(group)]
        waiting = [self._pack(row, step) for row in self._packer.waiting]
        left = {name for row in self._packer.waiting for name in row["generation_params"]["rollout_ids"]}
        self._numbers = {name: number for name, number in self._numbers.items() if name in left}
        return packets, waiting

    def _pack(self, group: Group, step: int) -> Packet:
        name = uuid.uuid4().hex
        params = group["generation_params"]
        body = orjson.dumps({**group, "generation_params": {**params, "delivery_id": name}})
        rows = Counter(self._numbers[rollout] for rollout in params["rollout_ids"])
        # Without the first brace, before which `TrainerAPI.send` puts the environment's id.
        return Packet(name, step, rows, gzip.compress(body[1:], compresslevel=1))


def _unpack(packet: Packet) -> Group:
    group: Group = orjson.loads(b"{" + gzip.decompress(packet.body))
    return group


@dataclass(frozen=True, slots=True)
class Registration:
    """How an environment registers. name: the run's own, see the module's docstring."""

    name: str
    max_token_length: int
    weight: float
    group_size: int


class Delivery:
    """The run's side of the trainer API: registers, sends what is ready, keeps `status` up to date.

    max_stale: steps that the trainer may have gone on since a group was made; groups that are
        older are put aside.
    """

    poll_s = 1.0
    longest_pause_s = 8.0
    remind_s = 15.0

    def __init__(
        self, api: TrainerAPI, journal: Journal, metrics: Metrics, registration: Registration, *, max_stale: int
    ) -> None:
        self._api = api
        self._journal = journal
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
        self.answer: dict[str, Any] = {}
        """What the API said when we registered."""
        self.status: dict[str, Any] = {}
        self.ready = 0
        """Packets that are to be sent."""
        self.spool_bytes = 0

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
                sent = await self._turn()
            except httpx.HTTPError as error:
                pause = min(self.longest_pause_s, 2 * pause or 0.5)
                if isinstance(error, httpx.ConnectError):
                    self._registered = False  # what answers next may have been restarted
                self._metrics.count_failure("trainer")
                if time.monotonic() - self._reminded > self.remind_s:
                    self._reminded = time.monotonic()
                    logger.warning("the trainer API failed (%s: %s); trying again", type(error).__name__, error)
                await asyncio.sleep(pause)
                continue
            pause = 0.0
            if not sent:
                try:
                    async with asyncio.timeout(self.poll_s):
                        await self._journal.changed.wait()
                except TimeoutError:
                    continue

    def expect(self, packets: Sequence[Packet]) -> None:
        """Count packets that were put into the spool."""
        self.ready += len(packets)
        self.spool_bytes += sum(len(packet.body) for packet in packets)

    async def leave(self) -> None:
        """Tell the API that we go."""
        if self._registered:
            try:
                await self._api.disconnect(self.env_id)
            except httpx.HTTPError as error:
                logger.debug("the trainer API was not told that we leave: %s", error)

    async def _turn(self) -> bool:
        """Look at the API's state and send a packet. Returns whether there was one."""
        if not self._registered:
            await self.connect()
        self._journal.changed.clear()
        try:
            self.status = await self._api.status(self.env_id)
        except httpx.HTTPStatusError:
            self._registered = False  # it does not know us
            raise
        await self._journal.handed_on(left=int(self.status["self_queue_size"]))
        packet = await self._journal.next_ready()
        self.ready, self.spool_bytes = await self._journal.spooled()
        if packet is None:
            return False
        age = self.step - packet.step
        if age > self._max_stale:
            await self._put_aside(packet, "stale", f"it is {age} steps old")
            return True
        if self._unsure != packet.name or await self._api.latest() != packet.name:
            try:
                await self._api.send(self.env_id, packet.body)
            except TrainerAPIError as error:
                await self._put_aside(packet, "refused", str(error))
                return True
            except httpx.ConnectError:
                raise
            except httpx.HTTPError:
                self._unsure = packet.name
                raise
        await self._journal.confirm(packet)
        self.ready -= 1
        self._metrics.count_sent()
        return True

    async def _put_aside(self, packet: Packet, state: str, why: str) -> None:
        async def move() -> None:
            await self._journal.put_aside(packet, state)
            self._metrics.count_failure("trainer")
            logger.error("packet %d is not sent but kept in aside/: %s", packet.id, why)

        await finish(move())  # what is kept aside is counted, also at the end of a run

    async def _compare_notes(self, *, again: bool) -> None:
        """Find out what the API still has of what it took. again: it knows this run."""
        former = await self._journal.remember("env_id", "")
        await self._journal.replace("env_id", str(self.env_id))
        if again:
            if former:
                await self._api.disconnect(int(former))
            await self._journal.handed_on(left=0)  # under the former id they are not counted any more
            return
        # Beside other environments a batch may hold any number of our groups.
        alone = self.status.get("env_weight", 0.0) > 0.999
        batch = self.batch_size // self._registration.group_size if alone else 1
        sent_again, uncertain = await self._journal.lost_by_api(batch=batch)
        if sent_again or uncertain:
            logger.warning(
                "the trainer API has lost its queue: %d of our groups are sent again; %d, which may have been in "
                "a batch, are kept in aside/",
                sent_again,
                uncertain,
            )
