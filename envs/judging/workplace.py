"""A rollout's workplace: the sandbox for the work on a task, and the verifier of the work.

    async with open_workplace(backend, starts, task, image, spec) as place:
        async for step in place:
            ...                                   # somebody works in `place.sandbox`
            await place.judge(await place.collect())
    verdict = place.verdict()

A task of one step is a task of steps (`envs.judging.steps`). Each step is a task of its own. The loop yields them until
one is not good enough for the next. The verifier's sandbox is made ready beside the work, and the agent's is closed
before the last step is judged, unless it is judged there (`Hidden.in_place`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from atropos_agent.tracing import record_opening, span
from atropos_agent.types import AgentResult
from envs.judging.areas import Start
from envs.judging.begin import begin
from envs.judging.changes import Changes, collect_changes
from envs.judging.cheating import with_signs
from envs.judging.prepare import with_door
from envs.judging.reports.receiver import Receiver
from envs.judging.run_tests import OUT_OF_MEMORY
from envs.judging.saved_changes import pack_all
from envs.judging.start_trees import StartTrees
from envs.judging.steps import combined, good_enough, joined, parts, set_up
from envs.judging.verifier import Verifier, judge_in_place, open_verifier
from envs.types import Failure, InfraError, Outcome, Task, Verdict
from sandboxes.base import Backend, Sandbox, SandboxSpec


class Workplace:
    """One rollout's place; made by `open_workplace`. sandbox: the place of the work."""

    sandbox: Sandbox

    def __init__(self, backend: Backend, starts: StartTrees, task: Task, image: str, spec: SandboxSpec) -> None:
        self._backend = backend
        self._starts = starts
        self._task = task
        self._image = image
        self._steps = parts(task)
        self._receiver = Receiver()
        self._spec = with_door(spec, lambda: self._receiver) if self._steps[0].hidden.in_place else spec
        self._begun = 0
        self._verdicts: list[Verdict] = []
        self._changes: list[Changes] = []
        self._results: list[AgentResult] = []
        self._timings = {"open": 0.0, "agent": 0.0, "sandbox": 0.0, "verifier": 0.0}
        self._since = 0.0
        self._outside, self._inside = AsyncExitStack(), AsyncExitStack()
        """The contexts that are closed with the step's verifier, and with the sandbox."""

    def __aiter__(self) -> Workplace:
        return self

    async def __anext__(self) -> Task:
        """Begin the next step, and return it as a task. Raises InfraError and SandboxError."""
        if self._begun == len(self._steps) or not all(map(good_enough, self._task.steps, self._verdicts)):
            raise StopAsyncIteration
        if self._begun:
            await self._expect()
        problem = await set_up(self.sandbox, self._task.steps[self._begun]) if self._task.steps else None
        if problem is not None:
            # A step that could not be begun counts, when it is judged again, as it does now.
            self._changes.append(Changes(problem=problem))
            self._verdicts.append(Verdict(0.0, problem))
            raise StopAsyncIteration
        self._begun += 1
        self._since = time.monotonic()
        return self._steps[self._begun - 1]

    def left_s(self, most: float) -> float:
        """Return the rest of a rollout's time for work, in seconds: at least one if a step is begun
        late."""
        return max(min(1.0, most), most - self._timings["agent"])

    async def collect(self) -> Changes:
        """Take the changes of this step; the last one ends the sandbox. Nothing is taken, and the sandbox lives on, if
        the work is judged in place. Raises InfraError."""
        self._note("agent")
        last = self._begun == len(self._steps)
        if await self.sandbox.host_out_of_memory():
            raise InfraError(Failure.SANDBOX, f"{OUT_OF_MEMORY} in the agent's sandbox")
        hidden = self._steps[self._begun - 1].hidden
        if hidden.in_place:
            return Changes()
        with span("sandbox changes"):
            changes = await collect_changes(self.sandbox, self._start, hidden, stop=last)
        if last:
            await self._inside.aclose()
        self._note("sandbox")
        return changes

    async def judge(self, changes: Changes, result: AgentResult | None = None) -> None:
        """Judge the changes of this step. result: of the agent that made them. Raises InfraError."""
        step = self._steps[self._begun - 1]
        with span("verifier"):
            if step.hidden.in_place:
                self._receiver = Receiver()  # reports of the agent's own are in the one before
                verdict = await judge_in_place(self.sandbox, step, self._receiver)
            else:
                verdict = await self._verify(changes)
                self._changes.append(changes)
        self._verdicts.append(verdict if result is None else with_signs(verdict, result, changes))
        self._results += [] if result is None else [result]
        self._note("verifier")
        await self._outside.aclose()

    def verdict(self) -> Verdict:
        """Return the verdict on the task. Raises ValueError if no step was begun."""
        return combined(self._task, self._verdicts)

    async def outcome(self, keep_mb: float) -> Outcome:
        """Return the rollout's outcome. keep_mb: the most to keep of its changes, for judging them again.

        Raises InfraError if no agent worked."""
        if not self._results:
            raise InfraError(Failure.TASK, "".join(verdict.explanation for verdict in self._verdicts))
        work = await pack_all(self._changes, int(keep_mb * 2**20))
        return Outcome(joined(self._results), self.verdict(), self._timings, work)

    async def _open(self) -> None:
        await self._expect()
        self.sandbox = await self._inside.enter_async_context(record_opening("sandbox", self._backend.open(self._spec)))
        await begin(self.sandbox, self._task)
        self._note("open")

    async def _expect(self) -> None:
        """Make ready the verifier of the coming step, if it has one of its own."""
        step = self._steps[self._begun]
        self._since = time.monotonic()
        if step.hidden.in_place:
            return
        with span("sandbox start tree"):
            self._start: Start = await self._starts.get(step, self._image)
        verifier = record_opening("verifier", open_verifier(self._backend, step, self._image, self._note))
        self._verify: Verifier = await self._outside.enter_async_context(verifier)

    def _note(self, phase: str) -> None:
        """Add the time since the last phase to this one."""
        before, self._since = self._since, time.monotonic()
        self._timings[phase] += self._since - before


@asynccontextmanager
async def open_workplace(
    backend: Backend, starts: StartTrees, task: Task, image: str, spec: SandboxSpec
) -> AsyncIterator[Workplace]:
    """Open the workplace of one rollout. spec: the sandbox for the work. Raises InfraError and SandboxError, as do its
    methods."""
    place = Workplace(backend, starts, task, image, spec)
    async with place._outside, place._inside:
        await place._open()
        yield place
