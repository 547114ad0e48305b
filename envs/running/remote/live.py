"""A living worker process, as the driver sees it: its rollouts and its messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from envs.running.failures import attribute_errors
from envs.running.remote.folders import Folders, pack
from envs.running.remote.messages import (
    Link,
    News,
    RolloutFailure,
    RolloutOrder,
    RolloutPiece,
    SampledTokens,
    StartMessage,
    Turn,
    WorkerGoneError,
    WorkerLogRecord,
    WorkerUnreachableError,
    join_rollout,
)
from envs.running.replay import TurnRecording
from envs.types import Failure, InfraError, Rollout, Seat, Task

logger = logging.getLogger(__name__)

OPEN_S = 600.0
"""How long a worker may take to open the environment, in seconds."""
CLOSE_S = 30.0
"""How long it may take to remove its resources, in seconds."""
ANSWER_S = 30.0
"""How long it may take over an answer, in seconds: three times as long as it waits for something to tell."""
SILENT_S = 90.0
"""After how many seconds without an answer it is lost. Ray says sooner when its node is."""
AGAIN_S = 1.0
"""Seconds before a call is made again."""


class WorkerLostError(Exception):
    """A rollout's worker was lost. The rollout is made elsewhere."""


@dataclass(slots=True)
class PendingRollout:
    """A rollout that the worker makes."""

    recording: TurnRecording | None
    future: asyncio.Future[list[bytes]]
    parts: list[bytes] = field(default_factory=list)


class LiveWorker:
    """One process, from its start to its end. name: its name in messages. tasks: those it has worked on."""

    def __init__(self, link: Link, name: str, folders: Folders, sampled: Callable[[list[int]], None]) -> None:
        self.name = name
        self.tasks: set[str] = set()
        self._link = link
        self._folders = folders
        self._known: set[str] = set()
        """Digests of its folders."""
        self._sampled = sampled
        self._making: dict[int, PendingRollout] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._arrived = 0

    async def open(self, opening: StartMessage) -> None:
        """Let it open the environment. Raises InfraError, WorkerGoneError."""
        try:
            with attribute_errors(
                TimeoutError, WorkerGoneError, WorkerUnreachableError
            ):  # a module may lack there, say
                async with asyncio.timeout(OPEN_S):
                    failure = await self._link.call("open", opening)
        except TimeoutError as error:
            raise InfraError(Failure.WORKER, f"{self.name} was not ready within {OPEN_S:g} s") from error
        if failure is not None:
            raise failure.error(self.name)

    async def make(self, number: int, task: Task, seat: Seat) -> Rollout:
        """Make a rollout there. Raises InfraError, and WorkerLostError when the process ends first."""
        recording = seat.recording if isinstance(seat.recording, TurnRecording) else None
        making = self._making[number] = PendingRollout(recording, asyncio.get_running_loop().create_future())
        self.tasks.add(task.id)
        telling = asyncio.create_task(self._begin(number, task, seat, making))
        try:
            parts = await making.future
        except asyncio.CancelledError:
            self._run_later(self._send("drop", number))
            raise
        finally:
            telling.cancel()
            del self._making[number]
        return join_rollout(parts, task, seat)

    def expect(self, task: Task) -> None:
        """Let it begin the slow preparations for a task."""
        self.tasks.add(task.id)

        async def expect() -> None:
            sent, packed = await self._pack_task(task)
            await self._send("expect", sent, packed)

        self._run_later(expect())

    async def listen(self) -> None:
        """Take in its messages, for ever. Raises WorkerGoneError when it is lost."""
        silent_s = 0.0
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(ANSWER_S):
                    news = await self._link.call("news", self._arrived)
            except (WorkerUnreachableError, TimeoutError) as error:
                await asyncio.sleep(AGAIN_S)
                silent_s += min(time.monotonic() - began, ANSWER_S)  # not the time in which we stood still
                if silent_s >= SILENT_S:
                    reason = f" ({error})" if str(error) else ""  # a TimeoutError says nothing
                    raise WorkerGoneError(f"it has not answered for {silent_s:.0f} s{reason}") from error
                continue
            silent_s = 0.0
            for number, one in news:
                if number > self._arrived:
                    self._arrived = number
                    self._handle(one)

    async def close(self) -> None:
        """Let it remove its resources."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._link.call("close")
        except (WorkerGoneError, WorkerUnreachableError, TimeoutError) as error:
            reason = str(error) or f"no answer within {CLOSE_S:.0f} s"  # a TimeoutError says nothing
            logger.warning("the worker on %s did not end in order: %s", self.name, reason)

    async def kill(self) -> None:
        """End the process at once."""
        await self._link.kill()

    def fail_rollouts(self) -> int:
        """Give up its rollouts. Returns how many these are."""
        for call in self._calls:
            call.cancel()
        for making in self._making.values():
            if not making.future.done():
                making.future.set_exception(WorkerLostError(self.name))
        return len(self._making)

    async def _begin(self, number: int, task: Task, seat: Seat, making: PendingRollout) -> None:
        try:
            with attribute_errors(WorkerGoneError):
                turns = None if making.recording is None else await making.recording.journalled_turns()
                sent, packed = await self._pack_task(task)
                await self._send("begin", RolloutOrder(number, sent, replace(seat, recording=None), turns, packed))
                self._known |= packed.keys()
        except WorkerGoneError:
            pass  # `fail_rollouts` says so
        except InfraError as error:
            if not making.future.done():
                making.future.set_exception(error)

    async def _pack_task(self, task: Task) -> tuple[Task, dict[str, bytes]]:
        """Return a task in its form for sending, and its folders that the worker lacks."""

        def work() -> tuple[Task, dict[str, bytes]]:
            sent, used = self._folders.replace_paths(task)
            return sent, {digest: pack(path) for digest, path in used.items() if digest not in self._known}

        return await asyncio.to_thread(work)

    async def _send(self, method: str, *arguments: Any) -> None:
        while True:
            try:
                await self._link.call(method, *arguments)
                return
            except WorkerUnreachableError as error:
                logger.debug("%s of %s is called again: %s", method, self.name, error)
            await asyncio.sleep(AGAIN_S)

    def _run_later(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._log_failure)

    def _log_failure(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("the worker on %s was not told: %r", self.name, error)

    def _handle(self, news: News) -> None:
        match news:
            case WorkerLogRecord(logger=name, level=level, text=text):
                logging.getLogger(name).log(level, "[%s] %s", self.name, text, extra={"worker": self.name})
            case SampledTokens(tokens=tokens):
                self._sampled(list(tokens))
            case _ if (making := self._making.get(news.number)) is not None and not making.future.done():
                self._handle_rollout_news(making, news)

    def _handle_rollout_news(self, making: PendingRollout, news: Turn | RolloutPiece | RolloutFailure) -> None:
        match news:
            case Turn(body=body):
                if making.recording is not None:
                    making.recording.journal(body)
            case RolloutPiece(piece=piece, last=last):
                making.parts.append(piece)
                if last:
                    making.future.set_result(making.parts)
            case RolloutFailure(failure=failure, progress=progress):
                if making.recording is not None and progress is not None:
                    making.recording.progress = progress
                making.future.set_exception(failure.error(self.name))
