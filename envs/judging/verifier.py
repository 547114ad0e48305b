"""Judge the agent's changes by hidden tests, in a sandbox that the agent never entered.

`open_verifier` opens the verifier's sandbox beside the agent's work, so it costs no time. `prepare` puts the tests
into it, `run_tests` applies the changes, runs test.sh and fetches its results, `results` reads these as a `Verdict`.

What the code under test can cause is a reward of 0 (docs/reward.md, "Failures"). A sandbox that died by none of its
limits (`Sandbox.overran`), or a test.sh that was killed once, proves nothing against the code: any user of the Docker
daemon can do that. Neither does time that passed while others had the processors (`CpuStarved`). Failures that the code
can't cause raise `InfraError`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace

from envs.judging.changes import Changes
from envs.judging.prepare import PreparedSandbox, open_prepared, prepare_in_place
from envs.judging.reports.receiver import Receiver
from envs.judging.run_tests import CpuStarved, DiedInTests, ScriptKilled, run_tests
from envs.types import JUDGED_IN_PLACE, Failure, InfraError, Task, Verdict
from sandboxes.base import Backend, Sandbox

logger = logging.getLogger(__name__)

_TWICE = 2
_KILLS = 3
"""In how many sandboxes test.sh must end by a signal before the code under test is blamed: others can send one."""
_PATIENCE = 4.0
"""How many times as long tests may take if they are run again because the machine was busy."""

Verifier = Callable[[Changes], Awaitable[Verdict]]


async def judge(backend: Backend, task: Task, image: str, changes: Changes) -> Verdict:
    """Judge changes in a fresh sandbox. Raises InfraError when we fail."""
    async with open_verifier(backend, task, image) as verifier:
        return await verifier(changes)


async def judge_in_place(sandbox: Sandbox, task: Task, receiver: Receiver) -> Verdict:
    """Judge the work in the agent's own sandbox, once: what fails there can't be tried again. receiver: takes the
    reports from it (`with_door`). Raises InfraError."""
    verdict = await run_tests(await prepare_in_place(sandbox, task, receiver), task, Changes())
    return replace(verdict, metrics={**verdict.metrics, JUDGED_IN_PLACE: 1.0})


@asynccontextmanager
async def open_verifier(
    backend: Backend, task: Task, image: str, done: Callable[[str], None] = lambda phase: None
) -> AsyncIterator[Verifier]:
    """Start the verifier's sandbox now, and yield the function that judges changes in it, once.

    done: called by that function with the name of each phase that has ended, "sandbox" of an opening and "verifier" of
    the tests in it.

    If the sandbox can't be opened, that function raises InfraError; nothing is raised before.
    """

    async def verify(changes: Changes) -> Verdict:
        if changes.problem is not None:
            return Verdict(0.0, f"Nothing could be judged: {changes.problem}.")
        failures: list[InfraError] = []
        while True:
            starved = bool(failures) and isinstance(failures[-1], CpuStarved)
            timeout_s = _PATIENCE * task.hidden.timeout_s if starved else None
            try:
                async with AsyncExitStack() as stack:
                    try:
                        prepared = await (
                            stack.enter_async_context(open_prepared(backend, task, image))
                            if failures
                            else asyncio.shield(ahead)
                        )
                    finally:
                        done("sandbox")
                    try:
                        return await run_tests(prepared, task, changes, timeout_s)
                    finally:
                        done("verifier")
            except InfraError as error:
                if error.kind is Failure.TASK:
                    raise
                failures.append(error)
            verdict = _proven(failures)
            if verdict is not None:
                return verdict
            logger.info("Task %s is judged once more in another sandbox, because %s", task.id, failures[-1])

    async with _ahead(open_prepared(backend, task, image), task.id) as ahead:
        yield verify


def _proven(failures: Sequence[InfraError]) -> Verdict | None:
    """Return the verdict that failures of the same kind prove; None if another sandbox may tell more. Raises the
    last failure if they prove nothing."""
    died = [error for error in failures if isinstance(error, DiedInTests) and error.overran]
    if len(died) == _TWICE:
        what = f"at the limit of its {died[-1].overran} ({died[-1]})"
        return Verdict(0.0, f"The tests brought down their sandbox, twice, {what}.")
    killed = [error for error in failures if isinstance(error, ScriptKilled)]
    if len(killed) == _KILLS:
        return Verdict(0.0, f"test.sh was killed in {_KILLS} sandboxes, one after the other: {killed[-1]}.")
    if len(failures) >= _TWICE and len(killed) < len(failures):
        raise failures[-1]
    return None


@asynccontextmanager
async def _ahead(
    opening: AbstractAsyncContextManager[PreparedSandbox], task_id: str
) -> AsyncIterator[asyncio.Future[PreparedSandbox]]:
    """Open and prepare a sandbox in the background, and close it at the end, both in one task: a backend may keep a
    task group open meanwhile. The future has the exception of a failed opening."""
    ready: asyncio.Future[PreparedSandbox] = asyncio.get_running_loop().create_future()
    finished = asyncio.Event()

    async def hold() -> None:
        try:
            async with opening as prepared:
                ready.set_result(prepared)
                await finished.wait()
        except Exception as error:  # it is raised where the sandbox is awaited
            if ready.done():
                logger.warning("The verifier's sandbox of task %s did not close cleanly: %s", task_id, error)
            else:
                ready.set_exception(error)
        finally:
            ready.cancel()  # a cancellation from within has left it open

    holder = asyncio.create_task(hold())
    try:
        yield ready
    finally:
        finished.set()
        if not ready.done():
            holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)
        if ready.done() and not ready.cancelled():
            ready.exception()  # marks it as seen: nobody may have asked for a verdict
