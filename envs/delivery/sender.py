"""Packets from the outbox to the trainer API: confirmed, in order, once.

The API keeps everything in memory and knows no message ids, so its answers decide. It names an environment after its
run, with a number that counts the earlier registrations of that run: this shows whether it is still the same API. It
reports the number of our packets in its queue and the number of batches formed: this shows the packets lost in a
restart. Each packet is noted on disk before it is sent. If the answer is lost, also with our process, these
figures show whether the packet arrived, or the group stored last does (`envs.delivery.notes`).

A silent API may have been replaced. After an error, a pause or a new connection the environment registers again
before anything is sent; its former number is given up. Nothing is sent before the API knows a trainer: groups
before that block it for good.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import httpx

from envs.delivery.notes import Attempt, KnownAPI, has_arrived
from envs.delivery.packing import Packet
from envs.delivery.trainer_api import (
    NOT_SENT,
    EnvStatus,
    InvalidResponseError,
    RegisteredEnv,
    TrainerAPI,
    TrainerAPIError,
    TrainerInfo,
)
from envs.records.metrics import Metrics
from envs.types import Failure, GroupState
from sandboxes.plurals import plural
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

ALONE = 0.999
"""Share of the weights above which no other environment is connected."""

LOOKS = 10
"""How often several questions are asked again that must be answered in one step of the trainer."""


class UnfillableBatchError(ValueError):
    """Groups of this size would never fill a batch of the trainer's."""


class Outbox(Protocol):
    """Packets to be sent, and those still in danger of loss in the API."""

    changed: asyncio.Event
    """Set when a packet has become ready to be sent."""

    async def next_packet(self, after: int = 0) -> Packet | None:
        """Return the oldest packet to be sent, those after the one with the id `after` first."""
        ...

    async def begin(self, packet: Packet, attempt: Attempt) -> None:
        """Note a packet just before it is sent."""
        ...

    async def packets_in_doubt(self) -> Sequence[tuple[Packet, Attempt]]:
        """Return the packets noted before sending and neither confirmed nor taken back."""
        ...

    async def take_back(self, packet: Packet) -> None:
        """Note a packet as not arrived."""
        ...

    async def confirm(self, packet: Packet) -> None:
        """Note a packet as taken by the API."""
        ...

    async def last_confirmed(self) -> str | None:
        """Return the name of the packet confirmed last."""
        ...

    async def environments(self) -> Sequence[int]:
        """Return our ids with packets in the API's queue."""
        ...

    async def note_handed_on(self, left: Mapping[int, int], *, formed: int, api: KnownAPI) -> None:
        """Note the packets gone from the API's queue, and keep the known facts of the API. left: number still there,
        by the id of their sender; formed: batches since the last look."""
        ...

    async def note_lost_by_api(
        self, *, batch: int, env_id: int, stored: str | None, doubtful: Collection[str]
    ) -> tuple[int, int]:
        """Send the packets lost by the API again, or keep them aside; returns the number of both. stored: the packet
        in the new API, as if it had come under our id there. doubtful: those with an unknown fate."""
        ...

    async def put_aside(self, packet: Packet, state: GroupState, reason: str) -> None:
        """Keep a packet in a file of its own and never send it."""
        ...

    async def known_api(self) -> KnownAPI | None:
        """Return the known facts of the API; None before the first registration."""
        ...

    async def save_known_api(self, api: KnownAPI) -> None:
        """Keep the known facts of the API."""
        ...


@dataclass(frozen=True, slots=True)
class Registration:
    """How an environment registers. name: the run's own, see the module's docstring."""

    name: str
    max_token_length: int
    weight: float
    group_size: int

    def check(self, info: TrainerInfo) -> None:
        """Raise UnfillableBatchError if groups of this size would never fill the trainer's batches."""
        size = self.group_size
        if size > info.batch_size or info.batch_size % size:
            raise UnfillableBatchError(
                f"group_size ({size}) must divide the trainer's batch_size ({info.batch_size}), or its batches "
                "never fill; set --env.group_size"
            )


class Sender:
    """The run's side of the trainer API: registers, sends finished packets, keeps `status` up to date.

    max_stale: the most steps of the trainer since a packet was made; older ones are put aside.
    """

    poll_s = 1.0
    longest_pause_s = 8.0
    remind_s = 15.0
    silence_s = 3.0
    """Time without an answer after which another API may be there, in seconds."""
    settle_s = 0.5
    """Time for the API to finish a request with a lost answer, in seconds."""
    grace_s = 5.0
    """Time for a request under way to be answered when the run ends, in seconds."""

    answer: RegisteredEnv
    """The API's answer to our registration."""
    status: EnvStatus

    def __init__(
        self, api: TrainerAPI, outbox: Outbox, metrics: Metrics, registration: Registration, *, max_stale: int
    ) -> None:
        self._api = api
        self._outbox = outbox
        self._metrics = metrics
        self._registration = registration
        self._max_stale = max_stale
        self._known: KnownAPI | None = None
        """The API with our registration; None when it is to be asked again."""
        self._answered_at = 0.0
        """When it answered last."""
        self._renewed = 0
        self._queued: int | None = None
        """Packets of ours in its queue, as of the last look and those sent since; None before the first look."""
        self._looked = False
        """Whether this process has seen the API's queue; until then a former one may have sent something since."""
        self._sent: str | None = None
        """The packet sent since the last look; only before this one may the API have been emptied."""
        self._failed = 0
        """Id of the packet tried last in vain: the others are tried before it."""
        self._pause = 0.0
        self._reminded = 0.0
        self._logged: type[Exception] | None = None
        """The kind of failure logged last, and when."""
        self.batch_size = -1
        self.max_token_len = -1
        """Longest row for the trainer is shorter than this; not positive for no limit."""

    @property
    def env_id(self) -> int:
        """Return our number at the API."""
        return self.answer.env_id

    @property
    def step(self) -> int:
        """Return the trainer's step, as the API counts: batches formed."""
        return self.status.current_step

    @property
    def _is_silent(self) -> bool:
        return time.monotonic() - self._answered_at > self.silence_s

    async def connect(self) -> None:
        """Register, waiting for the API and the trainer. Raises UnfillableBatchError."""
        while True:
            try:
                await self._register()
                return
            except httpx.HTTPError as error:
                await self._recover(error)

    async def run(self) -> None:
        """Send every finished packet, for ever."""
        while True:
            try:
                sent = await self._poll()
            except (httpx.HTTPError, UnfillableBatchError) as error:
                await self._recover(error)
                continue
            self._pause = 0.0
            if not sent:
                try:
                    async with asyncio.timeout(self.poll_s):
                        await self._outbox.changed.wait()
                except TimeoutError:
                    continue

    async def leave(self) -> None:
        """Report our end to the API."""
        if self._known is not None:
            try:
                await self._api.disconnect(self.env_id)
            except httpx.HTTPError as error:
                logger.debug("the trainer API was not told that we leave: %s", error)

    async def _recover(self, error: Exception) -> None:
        """Pause after a failure, longer each time. The next answer may come from another API."""
        self._known = None
        self._pause = min(self.longest_pause_s, 2 * self._pause or 0.5)
        self._metrics.count_failure(Failure.TRAINER)
        if type(error) is not self._logged or time.monotonic() - self._reminded > self.remind_s:
            self._logged, self._reminded = type(error), time.monotonic()
            logger.warning("the trainer API failed (%s); trying again", str(error) or type(error).__name__)
        await asyncio.sleep(self._pause)

    async def _poll(self) -> bool:
        """Look at the API's state and send a packet. Returns whether there was one."""
        if self._known is None or self._is_silent:
            await self._register()
        self._outbox.changed.clear()
        await self._update_state()
        if self._api.renewed != self._renewed:
            await self._register()
        packet = await self._outbox.next_packet(after=self._failed)
        if packet is None:
            return False
        age = self.step - packet.step
        if age > self._max_stale:
            await self._put_aside(packet, GroupState.STALE, f"it is {plural(age, 'step')} old")
        elif 0 < self.max_token_len <= packet.longest:
            why = (
                f"it has a row of {packet.longest} tokens, and the trainer takes shorter ones than {self.max_token_len}"
            )
            await self._put_aside(packet, GroupState.REFUSED, why)
        else:
            self._failed = packet.id
            await self._send_shielded(packet)
            self._failed = 0
        return True

    # Who is there

    async def _register(self) -> None:
        """Register, and find out the fate of earlier packets. Raises UnfillableBatchError."""
        self._known = None
        info = await self._api.info()
        self._registration.check(info)
        before = await self._outbox.known_api()
        registration = self._registration
        self.answer = answer = await self._api.register(
            name=registration.name,
            max_token_length=registration.max_token_length,
            weight=registration.weight,
            group_size=registration.group_size,
        )
        self._renewed, self._queued = self._api.renewed, None
        self.batch_size, self.max_token_len = info.batch_size, info.max_token_len
        known = KnownAPI.from_registration(answer, info.batch_size // registration.group_size)
        if before is not None and before.matches(answer):
            step = min(before.step, known.step)
            known = replace(known, step=step, alone=before.alone, leaving=_former_ids(before, known))
        else:
            if before is not None:
                await self._recover_lost_packets(before)
            known = replace(known, leaving=_former_ids(None, known))
        await self._outbox.save_known_api(known)
        for former in known.leaving:
            await self._api.disconnect(former)
        self._known = replace(known, leaving=())
        await self._resolve_doubts()
        await self._update_state()
        logger.info("registered with the trainer API as environment %d, step %d", self.env_id, self.step)

    async def _recover_lost_packets(self, before: KnownAPI) -> None:
        """Find out the losses of an API after its end, or after it was emptied."""
        if await self._outbox.packets_in_doubt():
            await asyncio.sleep(self.settle_s)
        stored, doubtful = await self._packets_stored_since(before)
        # Beside other environments a batch may hold any number of our packets.
        batch = before.batch if before.alone else 1
        again, uncertain = await self._outbox.note_lost_by_api(
            batch=batch, env_id=self.env_id, stored=stored, doubtful=doubtful
        )
        if again or uncertain:
            logger.warning(
                "the trainer API has lost its queue: %d of our packets are sent again; %d, which may have been in "
                "a batch, are kept in aside/",
                again,
                uncertain,
            )

    async def _packets_stored_since(self, before: KnownAPI) -> tuple[str | None, Collection[str]]:
        """Return the packet sent after the API was emptied or started again (so the API has it), and those with an
        unknown fate. Only packets sent since the last look are among them."""
        now, latest = await self._api.status(self.env_id), await self._latest_name()
        if now.queue_size == now.current_step == 0:
            return None, ()  # it may still tell of what it stored last before
        if before.alone and now.env_weight > ALONE:
            return latest, ()  # nobody else can have filled it
        sent = {self._sent} if self._looked else {self._sent, latest}
        return None, {name for name in sent if name is not None}

    async def _fetch_state(self) -> tuple[EnvStatus, KnownAPI, dict[int, int]]:
        """Ask for the step and the queue. Returns the answer, the facts known now, and our packets in the queue by our
        ids."""
        if self._known is None:
            raise RuntimeError("an API is followed only after registering")
        for _ in range(LOOKS):
            status = await self._api.status(self.env_id)
            others = [former for former in await self._outbox.environments() if former != self.env_id]
            answers = {former: await self._api.status(former) for former in others}
            if all(now.current_step == status.current_step for now in answers.values()):
                break  # else packets of the batch formed meanwhile are counted in `left`, or not
        else:
            raise InvalidResponseError(f"{self._api.url} tells of another step in each answer")
        left = {self.env_id: status.self_queue_size, **{name: one.self_queue_size for name, one in answers.items()}}
        self._answered_at = time.monotonic()
        queued = sum(left.values())
        alone = status.env_weight > ALONE and status.queue_size <= queued
        return status, replace(self._known, step=status.current_step, alone=alone), left

    async def _update_state(self) -> None:
        """Look at the step and the queue, and forget the packets taken by a trainer."""
        status, known, left = await self._fetch_state()
        before = self._known or known
        formed, queued = known.step - before.step, sum(left.values())
        if self._queued is not None:
            # Nobody else can have filled these batches.
            too_many = before.alone and known.alone and formed * known.batch > self._queued
            if formed < 0 or too_many or (formed == 0 and queued < self._queued):
                raise InvalidResponseError(
                    f"{self._api.url} tells of steps and groups that don't agree; it may be another API"
                )
        if formed > 0 and not (before.alone and known.alone):
            # What others have in batches nobody can reckon, so it has to be told twice.
            again, *_ = await self._fetch_state()
            if again.current_step < status.current_step:
                raise InvalidResponseError(
                    f"{self._api.url} tells of step {status.current_step}, then of {again.current_step}"
                )
        await self._outbox.note_handed_on(left, formed=formed, api=known)
        self.status, self._known, self._queued = status, known, queued
        self._looked, self._sent = True, None

    async def _latest_name(self) -> str | None:
        """Return the name of the packet stored last by the API; None when it reports none."""
        try:
            return await self._api.latest()
        except InvalidResponseError as error:
            logger.debug("the trainer API does not tell what it stored last: %s", error)
            return None

    # One packet

    async def _send_shielded(self, packet: Packet) -> None:
        """Send a packet. A request under way is answered before a cancellation is passed on, if it does not take
        long."""
        sending = asyncio.ensure_future(self._send(packet))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            try:
                await asyncio.wait({sending}, timeout=self.grace_s)
            finally:
                sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            raise

    async def _send(self, packet: Packet) -> None:
        if self._known is None or self._queued is None:
            raise RuntimeError("a packet is sent only after a look at the API")
        known = self._known
        await self._outbox.begin(packet, Attempt(self.env_id, known.step, self._queued, known.foreign, known.alone))
        if self._is_silent:  # the disk may have been full meanwhile
            await self._outbox.take_back(packet)
            return
        self._sent = packet.name
        try:
            queued = await self._api.send(self.env_id, packet.body)
        except TrainerAPIError as error:
            await self._put_aside(packet, GroupState.REFUSED, str(error))
            return
        except NOT_SENT:
            await self._outbox.take_back(packet)
            raise
        self._answered_at = time.monotonic()
        if not queued:
            self._known = None  # the size of our groups is another's: so is the number
            why = "the trainer API took it for a group of another environment"
            await self._put_aside(packet, GroupState.UNCERTAIN, why)
            return
        await self._confirm(packet)
        self._queued += 1

    async def _confirm(self, packet: Packet) -> None:
        await self._outbox.confirm(packet)
        self._metrics.groups_sent += 1

    async def _resolve_doubts(self) -> None:
        """Find out whether packets without a confirmation arrived; it was lost with the connection or with our
        process."""
        doubts = await self._outbox.packets_in_doubt()
        if not doubts:
            return
        await asyncio.sleep(self.settle_s)
        _, known, left = await self._fetch_state()
        now = Attempt(self.env_id, known.step, sum(left.values()), known.foreign, known.alone)
        for packet, attempt in doubts:
            stored = has_arrived(attempt, now, batch=known.batch)
            if stored is None:
                stored = await self._is_latest(packet)
            if stored is None:
                why = "nobody can tell whether the trainer API has it: beside other environments, batches were formed"
                await self._put_aside(packet, GroupState.UNCERTAIN, why)
            elif stored:
                await self._confirm(packet)
            else:
                await self._outbox.take_back(packet)

    async def _is_latest(self, packet: Packet) -> bool | None:
        """Tell whether a packet arrived, by the group stored last by the API; None for another's group."""
        latest = await self._latest_name()
        if latest == packet.name:
            return True
        # The one before it is the latest still.
        return False if latest is not None and latest == await self._outbox.last_confirmed() else None

    async def _put_aside(self, packet: Packet, state: GroupState, why: str) -> None:
        async def move() -> None:
            await self._outbox.put_aside(packet, state, why)
            self._metrics.count_failure(Failure.TRAINER)
            logger.error("packet %d is not sent but kept in aside/: %s", packet.id, why)

        await finish(move())  # what is kept aside is counted, also at the end of a run


def _former_ids(before: KnownAPI | None, now: KnownAPI) -> tuple[int, ...]:
    """Return our former numbers at an API, also those of registrations without an answer. If others registered
    in between, the owners of those numbers are unknown."""
    first, named = (0, ()) if before is None else (before.env_id, (*before.leaving, before.env_id))
    others = now.foreign - (0 if before is None else before.foreign)
    return tuple(sorted({*named, *(range(first, now.env_id) if others == 0 else ())}))
