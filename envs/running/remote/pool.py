"""The driver's side of worker processes on many machines: the choice of a worker for a rollout, and the loss of one."""

from __future__ import annotations

import asyncio
import itertools
import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from envs.records.atif import PACKAGE_VERSION
from envs.running.environment import Environment
from envs.running.permanent import is_permanent
from envs.running.remote.folders import Folders, pack
from envs.running.remote.live import LiveWorker, WorkerLostError
from envs.running.remote.member import WorkerSlot
from envs.running.remote.messages import Cluster, StartMessage
from envs.running.waiting import PATIENCE_S, retry_until_reachable
from envs.types import Failure, InfraError, Rollout, Seat, Task
from sandboxes.shielding import stop

logger = logging.getLogger(__name__)

LOOK_S = 3.0
"""Between two looks at the present nodes, in seconds."""
MOVES = 4
"""Workers that a rollout may lose, one after the other, before this counts as its failure: it may end them."""
KNOWN = 0.25
"""By how much of its room a worker may be busier than another and still get one of its earlier tasks: the image is
there."""
REMIND_S = 30.0
"""Between two messages about rollouts waiting for a worker, in seconds."""


class Pool:
    """Makes rollouts in worker processes; see `Worker`. Used as `async with`.

    each: worker processes on a node. most: rollouts in each at the same time. lost: gets the number of rollouts lost
    with their worker. sampled: gets the tokens that workers have sampled, by inference server.
    """

    def __init__(
        self,
        cluster: Cluster,
        opening: StartMessage,
        *,
        each: int,
        most: int,
        lost: Callable[[int], None] = lambda rollouts: None,
        sampled: Callable[[list[int]], None] = lambda tokens: None,
    ) -> None:
        self._cluster = cluster
        self._opening = opening
        self._each, self._most = each, most
        self._lost, self._sampled = lost, sampled
        self._folders = Folders()
        self._numbers = itertools.count(1)
        self._members: dict[tuple[str, int], WorkerSlot] = {}
        self._staying: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._turnstile = asyncio.Lock()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Start the workers, and wait for the first, for `PATIENCE_S` at most. Raises InfraError when none can work,
        permanently, and ConnectionError when none has come."""
        await retry_until_reachable(self._cluster.__aenter__)
        self._keeping = asyncio.create_task(self._keep_workers())
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.__aexit__)
            async with self._remind_while_waiting(f"waiting for a first worker, up to {PATIENCE_S / 60:.0f} minutes"):
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        while not any(member.live for member in self._members.values()):
                            self._raise_permanent_failure()
                            await self._wait_for_change()
                except TimeoutError as error:
                    raise ConnectionError(
                        f"no worker was ready within {PATIENCE_S / 60:.0f} minutes: {self._describe_nodes()}; add "
                        "nodes, end runs that hold them, or ask for less with --env.ray.resources"
                    ) from error
            undo.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await stop([self._keeping])
        await asyncio.gather(*(member.close() for member in self._members.values()))
        await stop([*self._staying.values(), *self._leaving])
        await self._cluster.__aexit__(None, None, None)

    async def run(self, task: Task, seat: Seat) -> Rollout:
        """See `Worker`. Another worker makes the rollout of a lost one, with the replies that it got."""
        for _ in range(MOVES):
            member, live = await self._place(task)
            try:
                rollout = await live.make(next(self._numbers), task, seat)
            except WorkerLostError:
                continue
            except InfraError as error:
                member.note_failure(error)
                raise
            else:
                member.note_success()
                return rollout
            finally:
                member.active -= 1
                self._changed.set()
        raise InfraError(Failure.WORKER, f"the worker was lost {MOVES} times, one after the other")

    def expect(self, task: Task) -> None:
        """See `Worker`."""
        if (member := self._choose(task)) is not None and member.live is not None:
            member.live.expect(task)

    async def _place(self, task: Task) -> tuple[WorkerSlot, LiveWorker]:
        """Return a worker with room, in the order of asking."""
        async with self._turnstile, self._remind_while_waiting("rollouts wait for a worker"):
            while (member := self._choose(task)) is None or (live := member.live) is None:
                await self._wait_for_change()
            member.active += 1
            return member, live

    def _choose(self, task: Task) -> WorkerSlot | None:
        there = [member for member in self._members.values() if member.live is not None]
        # Where all fail, it is hardly their fault: then the run's circuit breaker is enough.
        well = [member for member in there if member.is_fit] or there
        able = (member for member in well if member.active < self._most)
        return min(able, key=lambda member: self._cost(member, task), default=None)

    def _cost(self, member: WorkerSlot, task: Task) -> float:
        known = member.live is not None and task.id in member.live.tasks
        return member.active / self._most - (KNOWN if known else 0.0)

    async def _wait_for_change(self) -> None:
        """Wait until something may have changed; rests end by the clock alone."""
        self._changed.clear()
        try:
            async with asyncio.timeout(1.0):
                await self._changed.wait()
        except TimeoutError:
            pass

    @asynccontextmanager
    async def _remind_while_waiting(self, what: str) -> AsyncIterator[None]:
        """Report now and then the reason of the wait while the block runs."""

        timer: asyncio.TimerHandle

        def remind() -> None:
            nonlocal timer
            logger.warning("%s: %s", what, self._describe_nodes())
            timer = loop.call_later(REMIND_S, remind)

        loop = asyncio.get_running_loop()
        timer = loop.call_later(REMIND_S, remind)
        try:
            yield
        finally:
            timer.cancel()

    def _describe_nodes(self) -> str:
        """Return how the nodes stand, in words."""
        found = ", ".join(f"{member.name} {member.state}" for member in self._members.values())
        return found or "no node of the cluster has what --env.ray.resources asks for"

    def _raise_permanent_failure(self) -> None:
        failures = [member.failure for member in self._members.values()]
        lasting = [failure for failure in failures if failure is not None and is_permanent(failure)]
        if lasting and len(lasting) == len(failures):
            raise lasting[0]

    async def _keep_workers(self) -> None:
        """Keep workers on the present nodes, for ever."""
        while True:
            try:
                nodes = await self._cluster.nodes()
            except Exception as error:  # the cluster's head may be away for a while
                logger.warning("the cluster does not say which nodes it has: %s", error)
            else:
                wanted = {(node, number) for node in nodes for number in range(self._each)}
                for key in sorted(wanted - self._members.keys()):
                    self._add(key)
                for key in self._members.keys() - wanted:
                    self._remove(key)
            await asyncio.sleep(LOOK_S)

    def _add(self, key: tuple[str, int]) -> None:
        node, number = key
        name = node if self._each == 1 else f"{node}#{number}"
        first = len(self._members) % max(1, len(self._opening.engines))
        opening = replace(self._opening, first=first)

        async def start() -> LiveWorker:
            return LiveWorker(await self._cluster.start(node), name, self._folders, self._sampled)

        member = self._members[key] = WorkerSlot(name, start, opening, self._changed.set, self._lost)
        self._staying[key] = asyncio.create_task(member.keep_running(), name=f"worker on {name}")

    def _remove(self, key: tuple[str, int]) -> None:
        logger.warning("node %s has left the cluster", self._members.pop(key).name)
        task = self._staying.pop(key)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        task.cancel()


async def start_message_of(env: Environment) -> StartMessage:
    """Return the message to workers about an environment."""

    def tokenizer() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            env.tokenizer.save_pretrained(folder)
            return pack(Path(folder))

    return StartMessage(
        env_cls=type(env),
        config=env.config,
        engines=[server.config for server in env.servers],
        tokenizer=await asyncio.to_thread(tokenizer),
        version=PACKAGE_VERSION,
        name=env.run_dir.name,
        first=0,
        log_level=logging.getLogger().getEffectiveLevel(),
    )
