"""Judge saved rollouts again, without a model: each agent's changes were kept exactly.

They are judged as the first time, in a fresh sandbox, by the present tests of the task. Withheld changes
(protected paths) and unread ones (paths that were not graded) were not kept, and are not judged now either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from envs.judging.cheating import with_signs
from envs.judging.saved_changes import NotSaved, unpack_changes
from envs.judging.steps import combined, good_enough, parts
from envs.judging.verifier import judge
from envs.records.read import SavedRollout
from envs.rewards import RewardFunction, reward_of
from envs.types import JUDGED_IN_PLACE, InfraError, Outcome, Task, TestStatus, Verdict
from sandboxes.base import Backend, DaemonUnavailable, SandboxError


@dataclass(frozen=True, slots=True)
class RejudgeResult:
    """A rollout with its earlier verdict and its present one.

    before, now: the verifier's rewards; reward_before, reward_now: those of training. problem: why there is no verdict
    now, and both are None; "" with a verdict. tests: statuses before and now of the tests in which they differ,
    None for a missing test.
    """

    rollout: str
    task: str
    before: float
    reward_before: float
    now: float | None = None
    reward_now: float | None = None
    explanation: str = ""
    problem: str = ""
    tests: Mapping[str, tuple[TestStatus | None, TestStatus | None]] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Tell whether it is worth something else now."""
        return not self.problem and (self.now, self.reward_now) != (self.before, self.reward_before)


class Judge:
    """Judges saved rollouts by `tasks`, known by their ids, and rewards them by `rewarding`."""

    def __init__(self, backend: Backend, tasks: Mapping[str, Task], rewarding: RewardFunction) -> None:
        self._backend = backend
        self._tasks = tasks
        self._rewarding = rewarding

    async def rejudge(self, saved: SavedRollout) -> RejudgeResult:
        """Judge a rollout again. Raises DaemonUnavailable; every other failure is a result with its `problem`."""
        earlier = RejudgeResult(saved.id, saved.task_id, saved.verdict.reward, saved.reward.value)
        try:
            task = self._tasks.get(saved.task_id)
            if task is None:
                raise NotSaved("no task of this name is among the sound ones; `tasks check` tells why")
            if task.hidden.in_place or saved.verdict.metrics.get(JUDGED_IN_PLACE):
                raise NotSaved("the work is judged in the agent's own sandbox, which is gone")
            if not saved.work:
                raise NotSaved("the run kept nothing of what the agent made (--env.keep_work_mb)")
            verdict = await self._judge(task, saved)
            reward = self._reward(task, saved, verdict)
        except DaemonUnavailable:
            raise
        except (NotSaved, InfraError, SandboxError) as error:
            return replace(earlier, problem=str(error))
        return replace(
            earlier,
            now=verdict.reward,
            reward_now=reward,
            explanation=verdict.explanation,
            tests=dict(_differing(saved.verdict, verdict)),
        )

    async def _judge(self, task: Task, saved: SavedRollout) -> Verdict:
        """Return the verdict with the signs of cheating of its own rollout."""
        steps, works = parts(task), [unpack_changes(entry) for entry in saved.work]
        if len(works) > len(steps):
            raise NotSaved(f"the run kept the work of {len(works)} steps, and the task has {len(steps)} now")
        image = await self._backend.ensure_image(task.image, task.context)
        verdicts: list[Verdict] = []
        for part, work in zip_longest(steps, works):
            if not all(map(good_enough, task.steps, verdicts)):
                break
            if work is None and works[-1].problem:  # the step could not begin, so that the rollout ended
                break
            if work is None:
                raise NotSaved(f"step {task.steps[len(works)].name} would begin now, and no agent has worked on it")
            verdicts.append(await judge(self._backend, part, image, work))
        verdict = combined(task, verdicts)
        for changes in works:
            verdict = with_signs(verdict, saved.result, changes)
        return verdict

    def _reward(self, task: Task, saved: SavedRollout, verdict: Verdict) -> float:
        if saved.seat.evaluating:
            return verdict.reward
        rewarded = self._rewarding(task, Outcome(saved.result, verdict, saved.timings_s))
        return reward_of(rewarded, len(saved.result.steps)).value


async def rejudge_all(
    judge: Judge, rollouts: Iterator[SavedRollout], concurrency: int
) -> AsyncGenerator[RejudgeResult, None]:
    """Yield the outcomes of rollouts, as they are judged; `concurrency` of them at the same time. Raises the
    exceptions of their reader, and DaemonUnavailable."""
    running: set[asyncio.Task[RejudgeResult]] = set()
    left = True
    try:
        while left or running:
            while left and len(running) < concurrency:
                saved = await asyncio.to_thread(next, rollouts, None)
                if saved is None:
                    left = False
                else:
                    running.add(asyncio.create_task(judge.rejudge(saved)))
            if running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    yield one.result()
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _differing(before: Verdict, now: Verdict) -> Iterator[tuple[str, tuple[TestStatus | None, TestStatus | None]]]:
    for name in sorted(before.tests.keys() | now.tests.keys()):
        pair = before.tests.get(name), now.tests.get(name)
        if pair[0] is not pair[1]:
            yield name, pair
