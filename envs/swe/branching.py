"""The branches of a rollout: its sandbox and its conversation go on several times from one place.

    async with Tree(branches, place, make_agent, failures, attempts=3, keep_mb=1.0) as tree:
        outcome = await tree.grow(step.instruction)

Each end is a leaf, and is judged by itself. A branch that fails by an infrastructure failure is made again from its
place; so is the rollout itself, from its last place. A leaf that can't be had is left out of the mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from atropos_agent.agent import AtroposAgent
from atropos_agent.script import Diverged
from atropos_agent.turns import Turns
from atropos_agent.types import AgentResult
from envs.judging.steps import of_leaves
from envs.judging.workplace import Workplace
from envs.running.failures import attribute
from envs.swe.places import Branches
from envs.types import InfraError, Outcome, leaf_weights
from sandboxes.carrying import UNFORKABLE, Busy, CarryingSandbox
from tools.base import ToolResult

logger = logging.getLogger(__name__)

LOST = "lost branch"
"""Why replies are not trained: no leaf behind them could be had."""
BRANCHES = "tree"
"""In an `AgentResult`'s metadata: what became of a rollout's branches, in numbers."""


class MakeAgent(Protocol):
    """Makes an agent at work in a sandbox. first: it is the rollout's own, and not a branch's."""

    def __call__(self, sandbox: CarryingSandbox, *, first: bool) -> AtroposAgent: ...


@dataclass(eq=False, slots=True)
class _Point:
    """A place at which a rollout branches. due: leaves to be made from here. last: no more will be due."""

    turns: Turns
    last: bool
    due: int = 1
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, *, due: int = 0, last: bool = True) -> None:
        self.due, self.last = self.due + due, last
        self.changed.set()


class Tree:
    """A rollout with its branches; see the module's docstring.

    make_agent: makes an agent at work in a sandbox. failures: takes in those of branches, and of a rollout that goes on
    from one. attempts: at each leaf. keep_mb: the most to keep of a leaf's changes."""

    def __init__(
        self,
        branches: Branches,
        place: Workplace[Any],
        make_agent: MakeAgent,
        failures: list[InfraError],
        *,
        attempts: int,
        keep_mb: float,
    ) -> None:
        self._branches = branches
        self._place = place
        self._make_agent = make_agent
        self._failures = failures
        self._attempts = attempts
        self._keep_mb = keep_mb
        self._left = branches.count
        self._trunk: Turns | None = None
        self._point: _Point | None = None
        """The last place of the rollout itself."""
        self._growing: set[asyncio.Task[None]] = set()
        self._tried: list[Turns] = []
        self._leaves: list[tuple[Turns, Outcome]] = []
        self._counts: Counter[str] = Counter()

    async def __aenter__(self) -> Tree:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._growing:
            task.cancel()
        await asyncio.gather(*self._growing, return_exceptions=True)

    async def grow(self, instruction: str) -> Outcome:
        """Make the rollout and its branches, and return the outcome of all. Raises the rollout's own failure if no
        leaf can be had."""
        sandbox = CarryingSandbox(self._place.sandbox)
        agent = self._make_agent(sandbox, first=True)
        agent.executed = partial(self._executed, sandbox, True)
        own: Outcome | None = None
        failed: tuple[Exception, InfraError] | None = None
        try:
            result = await agent.run(instruction)
            await self._place.judge(await self._place.collect(), result)
            own = await self._place.outcome(self._keep_mb)
        except Exception as error:  # of any part of a rollout: its branches may still have a leaf
            if self._point is None:
                raise
            failed = error, self._note("the rollout is made again from its last branch", error)
        if self._point is not None:
            self._point.note(due=int(own is None))
        while self._growing:
            await asyncio.gather(*self._growing)
            self._growing = {task for task in self._growing if not task.done()}
        if failed is not None and not self._leaves:
            failure, noted = failed
            self._failures.remove(noted)  # who has this one raised counts it
            raise failure
        return self._joined(own)

    def _joined(self, own: Outcome | None) -> Outcome:
        """Return the outcome of all leaves. own: the rollout's, without its branches."""
        leaves = list(self._leaves)
        if self._trunk is not None and own is not None:
            leaves.insert(0, (self._trunk, own))
        if self._trunk is None and own is not None:
            return replace(own, result=self._told(own.result))
        (first, outcome), tried = leaves[0], (self._trunk, *self._tried)
        others = [turns.ledger for turns in tried if turns is not None and turns is not first]
        first.ledger.join(others, [turns.ledger for turns, _ in leaves], LOST)
        self._counts["leaves"] = len(leaves)
        weights = leaf_weights([[step.index for step in leaf.result.steps] for _, leaf in leaves])
        return Outcome(
            self._told(first.result()),
            of_leaves([leaf.verdict for _, leaf in leaves], weights),
            outcome.timings_s,
            tuple(entry for _, leaf in leaves for entry in leaf.work),
            [leaf for _, leaf in leaves],
        )

    def _told(self, result: AgentResult) -> AgentResult:
        metadata = {**result.metadata, BRANCHES: dict(self._counts)} if self._counts else result.metadata
        return replace(result, metadata=metadata)

    async def _executed(
        self, sandbox: CarryingSandbox, trunk: bool, turns: Turns, results: Sequence[ToolResult]
    ) -> None:
        """Branch behind the results of calls, if this is a place for it."""
        if not self._left or not self._branches.here(turns.ledger, results):
            return
        self._left -= 1
        ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        point = _Point(turns.branch(), last=not trunk)
        self._growing.add(asyncio.create_task(self._grow(point, sandbox, ready)))
        if not await ready:
            self._left += 1
        elif trunk:
            if self._point is not None:
                self._point.note()
            self._trunk, self._point = turns, point

    async def _grow(self, point: _Point, sandbox: CarryingSandbox, ready: asyncio.Future[bool]) -> None:
        """Make the leaves due at a place, one after the other, as long as more may be due."""
        try:
            async with sandbox.carry() as box:
                ready.set_result(True)
                used = False
                while point.due or not point.last:
                    if not point.due:
                        await point.changed.wait()
                        point.changed.clear()
                        continue
                    point.due -= 1
                    await self._make(point, box, used)
                    used = True
        except UNFORKABLE as error:
            if ready.done():
                self._note("a branch's sandbox", error)
                return
            self._counts[f"not forked: {type(error).__name__}"] += 1
            logger.log(logging.DEBUG if isinstance(error, Busy) else logging.WARNING, "no branch is made: %s", error)
            ready.set_result(False)
        finally:
            if not ready.done():
                ready.set_result(False)  # what has failed is raised where this task is awaited

    async def _make(self, point: _Point, box: CarryingSandbox, used: bool) -> None:
        """Make a leaf, in so many attempts. used: the sandbox has to be reset first."""
        for attempt in range(self._attempts):
            turns = point.turns.branch()
            self._tried.append(turns)
            try:
                if used or attempt:
                    await box.reset()
                agent = self._make_agent(box, first=False)
                agent.executed = partial(self._executed, box, False)
                outcome = await self._place.judge_fork(box, await agent.go_on(turns), self._keep_mb)
            except Exception as error:  # as above: another attempt may do
                self._note(f"attempt {attempt + 1} of {self._attempts} at a branch", error)
                if isinstance(error.__cause__, Diverged):
                    break
            else:
                self._leaves.append((turns, outcome))
                return
        self._counts["lost"] += 1

    def _note(self, what: str, error: Exception) -> InfraError:
        failure = attribute(error)
        logger.warning("%s: %s", what, failure, exc_info=error if failure.unexpected else None)
        self._counts[f"failed: {failure.kind}"] += 1
        self._failures.append(InfraError(failure.kind, f"{what}: {failure.message}"))  # its stack is in the log already
        return self._failures[-1]
