"""A worker process: makes the driver's rollouts, several at the same time, and reports their outcomes.

Its news are numbered and kept until the driver has confirmed them: so neither an order nor an
answer does harm if it is sent twice.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from envs.records.atif import PACKAGE_VERSION
from envs.records.redaction import Redactor
from envs.running.failures import attribute_errors
from envs.running.limits import raise_open_files
from envs.running.proxies import bypass_proxies_for_loopback
from envs.running.remote.folders import restore_paths, temporary_folder, unpack
from envs.running.remote.messages import (
    News,
    RemoteFailure,
    RolloutFailure,
    RolloutOrder,
    SampledTokens,
    StartMessage,
    Turn,
    split_rollout,
)
from envs.running.remote.outbound import ForwardingHandler, Outbound
from envs.running.replay import TurnRecording
from envs.running.telemetry import open_telemetry
from envs.running.watchdog import LoopWatch
from envs.running.worker import LocalWorker
from envs.types import Failure, InfraError, Task
from sandboxes.shielding import stop

TOKENIZER = "tokenizer"


class WorkerProcess:
    """A worker as the driver calls it: all messages and questions come by these methods, from one event loop."""

    def __init__(self) -> None:
        self._outbound = Outbound()
        self._rollouts: dict[int, asyncio.Task[None]] = {}
        self._begun: set[int] = set()
        self._servers: list[Any] = []
        self._reported: list[int] = []
        """Tokens of each inference server that the driver knows of."""
        self._unpacking = asyncio.Lock()
        self._closing = asyncio.Event()
        self._open: asyncio.Task[None] | None = None

    async def open(self, opening: StartMessage) -> RemoteFailure | None:
        """Open the environment. Returns the obstacle, if there is one."""
        opened: asyncio.Future[RemoteFailure | None] = asyncio.get_running_loop().create_future()
        self._open = asyncio.create_task(self._keep_open(opening, opened))
        return await opened

    async def begin(self, order: RolloutOrder) -> None:
        """Begin to make a rollout."""
        if order.number in self._begun:
            return
        self._begun.add(order.number)
        task = asyncio.create_task(self._make(order), context=self._context.copy(), name=f"rollout {order.number}")
        self._rollouts[order.number] = task
        task.add_done_callback(lambda _: self._rollouts.pop(order.number, None))

    async def drop(self, number: int) -> None:
        """Give a rollout up."""
        if (task := self._rollouts.get(number)) is not None:
            task.cancel()

    async def expect(self, task: Task, folders: dict[str, bytes]) -> None:
        """Begin the slow preparations for a task: it is drawn next."""
        await self._unpack(folders)
        self._context.copy().run(self._env.expect, restore_paths(task, self._folder))

    async def news(self, after: int) -> list[tuple[int, News]]:
        """Return the news since those with this number, which have arrived with all before them."""
        self._report_sampled()
        return await self._outbound.after(after)

    async def close(self) -> None:
        """End all rollouts, and remove their resources."""
        self._closing.set()
        if self._open is not None:
            await self._open

    async def _keep_open(self, opening: StartMessage, opened: asyncio.Future[RemoteFailure | None]) -> None:
        """Keep open the resources of rollouts, until `close`."""
        try:
            with attribute_errors():
                async with AsyncExitStack() as stack:
                    await self._enter(stack, opening)
                    self._context = contextvars.copy_context()  # in which spans are sent
                    opened.set_result(None)
                    await self._closing.wait()
                    await stop(list(self._rollouts.values()))
        except InfraError as error:
            if opened.done():
                logging.getLogger(__name__).exception("a worker could not be closed")
            else:
                opened.set_result(RemoteFailure.of(error))
        except asyncio.CancelledError:
            if opened.done():
                raise
            cut = InfraError(Failure.ENVIRONMENT, "the worker's opening was cancelled from within")
            opened.set_result(RemoteFailure.of(cut))

    async def _enter(self, stack: AsyncExitStack, opening: StartMessage) -> None:
        config, engines = opening.config, opening.engines
        root, redactor = (
            logging.getLogger(),
            Redactor.of(os.environ, (secret for engine in engines for secret in engine.secrets)),
        )
        telling = ForwardingHandler(self._outbound, redactor)
        root.addHandler(telling)
        stack.callback(root.removeHandler, telling)
        stack.callback(root.setLevel, root.level)
        root.setLevel(opening.log_level)
        if opening.version != PACKAGE_VERSION:
            what = f"atropos-agent {PACKAGE_VERSION} is installed there, and {opening.version} at the driver"
            raise InfraError(Failure.ENVIRONMENT, what) from ImportError(what)
        raise_open_files()
        bypass_proxies_for_loopback()
        self._folder = await asyncio.to_thread(stack.enter_context, temporary_folder())
        await asyncio.to_thread(unpack, opening.tokenizer, self._folder / TOKENIZER)
        here = {"tokenizer_name": str(self._folder / TOKENIZER), "run_dir": self._folder / "run", "workers": "process"}
        config = config.model_copy(update=here)
        # Not all workers ask the same server first.
        turned = [*engines[opening.first :], *engines[: opening.first]]
        env = self._env = await asyncio.to_thread(opening.env_cls, config, turned)
        env.redactor = redactor
        about = {"service.name": "atropos-agent", "atropos.environment": env.name, "atropos.run": opening.name}
        await stack.enter_async_context(open_telemetry(config.otlp_url, about, content=config.otlp_content))
        watch = await stack.enter_async_context(LoopWatch())
        self._servers = [*env.servers[len(engines) - opening.first :], *env.servers[: len(engines) - opening.first]]
        self._reported = [0] * len(self._servers)
        for server in self._servers:
            stack.push_async_callback(server.close)
            if env.carries_tokens:
                await server.connect()
        await env.setup(stack)
        gc.freeze()
        stack.callback(gc.unfreeze)
        self._worker = LocalWorker(env, config, watch)

    async def _make(self, order: RolloutOrder) -> None:
        number, recording = order.number, None
        news: list[Any]
        try:
            with attribute_errors():
                await self._unpack(order.folders)
                seat = order.seat
                if order.turns is not None:
                    sent = ForwardedTurns(number, order.turns, self._outbound)
                    recording = TurnRecording(sent, seat.group or 0, seat.member or 0)
                    await recording.rewind()
                    seat = replace(seat, recording=recording)
                rollout = await self._worker.run(restore_paths(order.task, self._folder), seat)
                news = await asyncio.to_thread(split_rollout, number, rollout)
        except InfraError as error:
            news = [RolloutFailure(number, RemoteFailure.of(error), recording.progress if recording else None)]
        self._report_sampled()  # what it took is known when it is there
        for one in news:
            self._outbound.add(one)

    def _report_sampled(self) -> None:
        sampled = [server.sampled for server in self._servers]
        if sampled != self._reported:
            self._outbound.add(
                SampledTokens([now - before for now, before in zip(sampled, self._reported, strict=True)])
            )
            self._reported = sampled

    async def _unpack(self, folders: dict[str, bytes] | Any) -> None:
        async with self._unpacking:
            for digest, packed in folders.items():
                to = self._folder / digest
                if not to.exists():
                    beside = to.with_suffix(".part")
                    await asyncio.to_thread(unpack, packed, beside)
                    beside.rename(to)


class ForwardedTurns:
    """The turns of one rollout: those in the order, and new ones, which go to the driver's journal."""

    def __init__(self, number: int, turns: Any, outbound: Outbound) -> None:
        self._number = number
        self._turns = list(turns)
        self._outbound = outbound

    def add_turn(self, number: int, member: int, body: bytes) -> None:
        """See `Turns`."""
        self._outbound.add(Turn(self._number, body))

    async def turns(self, number: int, member: int) -> list[bytes]:
        """See `Turns`."""
        return self._turns

    async def forget_turns(self, number: int, member: int) -> None:
        """See `Turns`; the driver decides about it."""
