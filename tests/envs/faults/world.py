"""Everything that a run meets, as a fault matrix wants it: each part can be spoilt while the run goes on.

The environment is a program of its own, between a scripted inference server, the real trainer API and a trainer that
counts rows by their ids. Its directory lies on a small disk.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from kills import Trainer
from programs import Program
from proxy import Proxy
from run_api import RunAPI
from scripted_engine import ScriptedEngine
from small_disk import SmallDisk

from envs.records.metrics import Metrics
from envs.running.group import group_outcomes
from envs.types import GroupState

HERE = Path(__file__).parent
SIZE = 2
KEPT = frozenset({GroupState.DELIVERED, GroupState.OUTBOX, GroupState.WORKING})


class World:
    """A run and its surroundings. Use it as `async with`."""

    def __init__(
        self,
        directory: Path,
        engine: ScriptedEngine,
        api: RunAPI,
        disk: SmallDisk,
        *,
        program: Sequence[object] = (HERE / "sums_program.py",),
        options: Sequence[str] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.directory, self.engine, self.api, self.disk = directory, engine, api, disk
        self.run_dir = disk.path / "run"
        self.log = directory / "log"
        self.trainer = Trainer(api.url)
        self.to_engine, self.to_api = Proxy(engine.url), Proxy(api.url)
        self.to_engine.only = b"/v1/completions"
        self._program, self._options, self._env = program, options, env or {}
        self.process: Program | None = None

    async def __aenter__(self) -> World:
        async with AsyncExitStack() as stack:
            for part in (self.trainer.consumer, self.to_engine, self.to_api):
                await stack.enter_async_context(part)
            self._pulling = asyncio.create_task(self.trainer.pull())
            stack.push_async_callback(self._stop)
            self.start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def start(self) -> None:
        """Start the environment."""
        command = [
            *(*self._program, "serve", f"--openai.base_url={self.to_engine.url}", f"--env.run_dir={self.run_dir}"),
            *(f"--env.rollout_server_url={self.to_api.url}", f"--env.group_size={SIZE}", "--env.equal_rewards=send"),
            *("--env.max_concurrent_rollouts=4", "--env.max_stale_steps=100000", "--env.shutdown_s=1"),
            *("--env.rollout_timeout_s=20", "--env.request_timeout_s=5"),
            *self._options,
        ]
        paths = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
        env = {**os.environ, "PYTHONPATH": paths, **self._env}
        self.process = Program(command, stdout=self.log, env=env)

    async def end(self, *numbers: signal.Signals, expected: Sequence[int] = (130,)) -> None:
        """End the environment by signals."""
        for number in numbers:
            self.process.send_signal(number)
            await asyncio.sleep(0.2)
        status = await asyncio.to_thread(self.process.wait, 30)
        assert status in expected, f"it ended with {status}: {self.tail()}"

    async def works(self, groups: int = 2, seconds: float = 90) -> None:
        """Wait until the trainer has some more groups."""
        enough = self.trainer.numbers.total() + groups
        try:
            async with asyncio.timeout(seconds):
                while self.trainer.numbers.total() < enough:
                    assert self.process.poll() is None, f"the environment ended by itself: {self.tail()}"
                    assert not self._pulling.done(), self._pulling.exception()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"no {groups} groups within {seconds:g} s: {self.tail()}") from None

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-1500:]

    async def _stop(self) -> None:
        self._pulling.cancel()
        await asyncio.gather(self._pulling, return_exceptions=True)
        if self.process.poll() is None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait, 30)

    async def account(self) -> str:
        """Stop the run, let the trainer have what the API holds, and compare what went in with what came out, row by
        row. Returns the figures."""
        if self.process.poll() is None:
            await self.end(signal.SIGTERM)
        await asyncio.sleep(1.5)
        assert not self._pulling.done(), self._pulling.exception()
        groups = list(group_outcomes(self.run_dir))
        states = {state: {outcome.number for outcome in groups if outcome.state is state} for state in GroupState}
        rows, numbers = self.trainer.rows, self.trainer.numbers
        assert [outcome.number for outcome in groups] == list(range(len(groups))), (
            "every group has its row in the journal"
        )
        assert {outcome.state for outcome in groups} <= KEPT, {outcome.state: outcome.reason for outcome in groups}
        assert set(numbers.values()) == {1}, "no group reached the trainer twice"
        assert set(rows.values()) == {1}, "no row reached the trainer twice"
        assert rows.total() == SIZE * len(numbers), "groups reach the trainer whole"
        assert set(numbers) <= states[GroupState.DELIVERED] | states[GroupState.OUTBOX], "what came out went in"
        missing = states[GroupState.DELIVERED] - set(numbers)
        assert len(missing) < 2, f"what does not fill a batch is in the API's queue; lost: {missing}"
        assert {reward for outcome in groups for reward in outcome.rewards} <= {1.0}, (
            "no rollout was scored 0 by an infrastructure failure"
        )
        metrics = Metrics.from_json((self.run_dir / "metrics.json").read_bytes())
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(metrics.failures.items()))
        return f"{len(groups)} groups in, {len(numbers)} out in {rows.total()} rows; failures of ours: {counted}"


@dataclass(frozen=True)
class Fault:
    """A row of the matrix. strike: brings the fault about, holds it for a while and takes it back."""

    name: str
    strike: Callable[[World], Awaitable[None]]


async def survive(world: World, faults: Sequence[Fault]) -> None:
    """Let one fault after the other happen to a run. Raises AssertionError with all that it did not survive."""
    lines, wrong = [], []
    await world.works(4)
    for fault in faults:
        began = asyncio.get_running_loop().time()
        try:
            await fault.strike(world)
            await world.works()
        except AssertionError as error:
            wrong.append(f"{fault.name}: {error}")
            if world.process.poll() is None:
                world.process.kill()
                await asyncio.to_thread(world.process.wait, 30)
            world.start()
        lines.append(f"{asyncio.get_running_loop().time() - began:6.1f} s  {fault.name}")
    try:
        lines.append(await world.account())
    except AssertionError as error:
        wrong.append(f"the account: {error}")
    print("\n".join([f"{len(faults)} faults", *lines]))
    assert not wrong, "\n\n".join(wrong)
