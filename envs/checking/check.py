"""Check tasks before they are used: the reference solves each, doing nothing doesn't.

The reference solution works in a sandbox exactly as an agent would, and its changes are judged exactly
like an agent's work. A task whose reference is not rewarded with 1, or that rewards an untouched tree
with 1, trains nothing but noise.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from rich.console import Group
from rich.text import Text

from envs.checking.flakes import disagreement
from envs.checking.manifest import CheckResult, with_record
from envs.judging.archives import pack_directory
from envs.judging.changes import Changes
from envs.judging.prepare import command_of
from envs.judging.record import REFERENCE, merged, named, unverified
from envs.judging.results import WRITTEN
from envs.judging.specs import agent_spec
from envs.judging.start_trees import StartTrees
from envs.judging.steps import parts
from envs.judging.verifier import judge
from envs.judging.watched_tasks import lists_tests
from envs.judging.workplace import open_workplace
from envs.records.tables import Sheet
from envs.types import JUDGED_IN_PLACE, TESTS_UNSEEN, BadTask, Failure, InfraError, Task, TestStatus, Verdict
from sandboxes.base import Backend, DaemonUnavailable, Sandbox, SandboxError
from sandboxes.docker import DockerBackend
from sandboxes.log import without_control
from sandboxes.plurals import plural
from sandboxes.shielding import run_concurrently
from tools.mcp import tools_of
from tools.mcp.servers import MCPServerError, check_installed

logger = logging.getLogger(__name__)

_REFERENCE_S = 900.0
_SHOWN = 4000
"""Shown characters of a problem, the last ones; the manifest has all of it."""
_NAMED = 3
IN_DOUBT = 20
"""Checks of a task in doubt, at least. They see a flake of one verdict in seven with 95%."""


async def check_tasks(
    backend: Backend,
    tasks: Sequence[Task],
    *,
    repeats: int = 1,
    concurrency: int = 2,
    known: Mapping[str, CheckResult] | None = None,
    doubted: Collection[str] = (),
    on_result: Callable[[CheckResult], None] | None = None,
) -> list[CheckResult]:
    """Check tasks, `concurrency` at a time; results in the order of `tasks`.

    repeats: how often each is checked; rewards or tests that differ make it flaky, and unusable.
    known: results of an earlier check, taken if the task is the same and was seen, often enough, to be
        sound, or to be flaky.
    doubted: ids of tasks to be checked `IN_DOUBT` times at least (`envs.checking.flakes`).
    on_result: called as each task is done.
    A task that fails, for any cause, is a result. An unreachable Docker daemon, or a fault of
    ours, ends the check with its exception.
    """
    turn = asyncio.Semaphore(concurrency)
    starts = StartTrees(backend)

    async def one(task: Task) -> CheckResult:
        result = (known or {}).get(task.id)
        wanted = max(repeats, IN_DOUBT) if task.id in doubted else repeats
        if result is None or not _stands(result, task, wanted):
            async with turn:
                result = await _check(backend, starts, task, wanted)
        if on_result is not None:
            on_result(result)
        return result

    return await run_concurrently(one(task) for task in tasks)


async def solve(backend: Backend, starts: StartTrees, task: Task, image: str) -> tuple[Verdict, str]:
    """Run the reference solution in a fresh sandbox and judge it. Returns the verdict and its printed output.

    Raises BadTask when the task has no solution, InfraError when we fail."""
    said = []
    try:
        async with open_workplace(backend, starts, task, image, agent_spec(task, image)) as place:
            await _try_servers(task, place.sandbox)
            async for step in place:
                said.append(await _run_reference(step, place.sandbox))
                await place.judge(await place.collect())
        return place.verdict(), "; ".join(said)
    except (SandboxError, OSError) as error:
        raise InfraError(Failure.SANDBOX, f"the reference of task {task.id} could not run: {error}") from error


async def do_nothing(backend: Backend, starts: StartTrees, task: Task, image: str) -> Verdict:
    """Judge the sandbox of an agent that does nothing. Raises InfraError."""
    if not (task.steps or task.hidden.in_place):
        return await judge(backend, task, image, Changes())
    async with open_workplace(backend, starts, task, image, agent_spec(task, image)) as place:
        async for _ in place:
            await place.judge(await place.collect())
    return place.verdict()


def _watched(task: Task, reference: Sequence[Verdict], record: str) -> bool:
    """Tell whether tests of the reference were seen that it has not brought along itself."""
    return not any(verdict.metrics.get(TESTS_UNSEEN) for verdict in reference) and (
        lists_tests(task) or all(named(record))
    )


async def _try_servers(task: Task, sandbox: Sandbox) -> None:
    """Start the task's MCP servers, and end them. Raises BadTask if one is broken."""
    try:
        check_installed(len(task.mcp_servers))
        async with tools_of(sandbox, task.mcp_servers):
            pass
    except (MCPServerError, ValueError) as error:
        raise BadTask(f"task {task.id}: {error}") from error


def _solution(task: Task) -> Path:
    if task.hidden.solution is None:
        raise BadTask(f"task {task.id} has no solution/solve.sh; without a reference it can't be checked")
    return task.hidden.solution


async def _run_reference(task: Task, sandbox: Sandbox) -> str:
    """Run solve.sh. Returns how it ended. Raises BadTask, SandboxError, OSError."""
    solution = _solution(task)
    await sandbox.exec("rm -rf /solution && mkdir -p /solution", user="root")
    await sandbox.upload(await asyncio.to_thread(pack_directory, solution), "/solution")
    script = await asyncio.to_thread((solution / "solve.sh").read_bytes)
    ran = await sandbox.exec(
        command_of("/solution/solve.sh", script),
        timeout=task.timeout_s or _REFERENCE_S,
        cwd=sandbox.workdir,
        env=task.hidden.solution_env,
    )
    ended = "did not end in time" if ran.timed_out else f"ended with status {ran.exit_code}"
    return f"solve.sh {ended}" + (f": {ran.output[-500:]}" if ran.output.strip() else ".")


def render(results: Sequence[CheckResult]) -> Group:
    """Return a table of the unusable tasks, with their problems in full (a failed build says why in
    its last lines), one of the others' blind spots, and a line of totals."""
    bad = [result for result in results if not result.ok]
    blind = [result for result in results if result.ok and result.blind_spots]
    shown: list[Sheet | Text | str] = []
    if bad:
        table = Sheet("task", "reference", "nothing", "seconds", title="Tasks that can't be used")
        for result in bad:
            rewards = [" ".join(f"{reward:g}" for reward in seen) or "-" for seen in (result.reference, result.nothing)]
            table.add(result.task_id, *rewards, f"{result.seconds:.1f}")
        shown.append(table)
    for result in bad:  # as Text, not markup: the problem quotes what programs printed
        problem = without_control(result.problem or "")
        cut = f"[…]\n{problem[-_SHOWN:]}" if len(problem) > _SHOWN else problem
        shown += [Text(f"\n{without_control(result.task_id)}:", "bold"), Text(cut)]
    line = f"{len(results) - len(bad)} of {plural(len(results), 'task')} can be used"
    if blind:
        table = Sheet("task", "could not notice", "tests", title="What tests could not notice (docs/reward.md)")
        for result in blind:
            more = len(result.unverified) - _NAMED
            tests = [*result.unverified[:_NAMED], *([f"and {more} more, in the manifest"] if more > 0 else [])]
            table.add(result.task_id, "\n".join(result.blind_spots), "\n".join(tests))
        shown.append(table)
        line += f"; the tests of {len(blind)} can't notice every class of cheating"
    return Group(*shown, line)


async def _check(backend: Backend, starts: StartTrees, task: Task, repeats: int) -> CheckResult:
    started = time.monotonic()
    image = ""
    reference: list[Verdict] = []
    nothing: list[Verdict] = []
    problem: str | None = None
    flaky: list[str] | None = None
    try:
        for part in parts(task):
            _solution(part)
        image = await backend.ensure_image(task.image, task.context)
        problem = await _judge_both(backend, starts, task, image, repeats, reference, nothing)
        flaky = disagreement(nothing or reference)
        if flaky is not None:
            problem = f"repeats disagree: the task is flaky{''.join(f', {test}' for test in flaky[:_NAMED])}"
    except DaemonUnavailable:
        raise
    except (BadTask, InfraError, SandboxError) as error:
        problem = str(error)

    record = merged([verdict.evidence for verdict in reference]) if problem is None else ""
    watched = _watched(task, reference, record)
    return CheckResult(
        task.id,
        task.digest,
        image,
        tuple(verdict.reward for verdict in reference),
        tuple(verdict.reward for verdict in nothing),
        round(time.monotonic() - started, 3),
        problem,
        flaky=flaky is not None,
        flaky_tests=tuple(flaky or ()),
        verifier_s=_most("verifier_s", [*reference, *nothing]),
        memory_mb=_most("verifier_memory_mb", [*reference, *nothing]),
        image_mb=await _image_mb(backend, image) if image else 0.0,
        notes=tuple(f"{path} is judged: the task or its tests name it" for path in task.hidden.graded),
        watched=watched,
        in_place=any(verdict.metrics.get(JUDGED_IN_PLACE) for verdict in reference),
        record=record,
        unverified=unverified(record),
        blind_spots=_blind_spots(task, reference, record, watched) if problem is None else (),
    )


def _blind_spots(task: Task, references: Sequence[Verdict], record: str, watched: bool) -> tuple[str, ...]:
    """Return the classes of cheating that a checked task's tests can't notice, a line each."""
    found = []
    failed = sorted({test for one in references for test, how in one.tests.items() if how is TestStatus.FAILED})
    if failed and watched:
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        found.append(f"failed tests: the reference fails {', '.join(failed[:_NAMED])}{more}; nobody is asked for them")
    forced = len(unverified(record))
    if forced:
        tests = sum(len(step.get("tests", ())) for step in json.loads(record))
        found.append(f"forced tests: {forced} of {tests} compare with nothing that has decoys")
    elif not record and any(verdict.evidence for verdict in references):
        found.append("forced tests: repeats called the tests differently, so none is asked for")
    if "printed-results" in task.tags:
        found.append("printed results: what a test runner prints is believed")
    elif not watched:
        found.append("unwatched: no test of the task is run by pytest or unittest, so test.sh's word is the reward")
    if any(verdict.metrics.get(JUDGED_IN_PLACE) for verdict in references):
        found.append("judged in place: the reference is rewarded in its own sandbox alone")
    return tuple(found)


async def _judge_both(
    backend: Backend,
    starts: StartTrees,
    task: Task,
    image: str,
    repeats: int,
    reference: list[Verdict],
    nothing: list[Verdict],
) -> str | None:
    """Judge the reference and then, if it is rewarded, the untouched tree: `repeats` times each, or until two verdicts
    on one disagree. Returns the task's problem. reference, nothing: get the verdicts."""

    def goes_on(verdicts: Sequence[Verdict]) -> bool:
        return len(verdicts) < repeats and disagreement(verdicts) is None

    judged, solved, said = await _solve(backend, starts, task, image)
    reference.append(solved)
    while goes_on(reference):
        reference.append((await solve(backend, starts, judged, image))[0])
    if disagreement(reference) is not None:
        return None
    if not solved.solved:
        return f"the reference is not rewarded. {said}\n{solved.explanation}"
    if judged.hidden.watched is not False:  # as runs judge it: the reference's tests are asked of everybody
        record = merged([verdict.evidence for verdict in reference])
        watched = _watched(task, reference, record)
        judged = with_record(task, record, watched=watched, in_place=judged.hidden.in_place)
    while goes_on(nothing):
        nothing.append(await do_nothing(backend, starts, judged, image))
    return f"an untouched tree is rewarded. {nothing[0].explanation}" if nothing[0].solved else None


def _most(metric: str, verdicts: Sequence[Verdict]) -> float:
    return round(max((verdict.metrics.get(metric, 0.0) for verdict in verdicts), default=0.0), 3)


async def _solve(backend: Backend, starts: StartTrees, task: Task, image: str) -> tuple[Task, Verdict, str]:
    """Judge the reference solution, in its own sandbox too if it is not rewarded in a fresh one: its work may be
    processes, or files that are not carried. Returns the task as it was judged, the verdict, and the output."""
    hidden = task.hidden
    fresh_alone = task.steps or hidden.own is not None or hidden.asks_judge or lists_tests(task)
    found: list[tuple[Task, Verdict, str]] = []
    failures: list[InfraError] = []
    for in_place in (False,) if fresh_alone else (False, True):
        try:
            found.append(await _solve_at(backend, starts, task, image, in_place=in_place))
        except InfraError as error:
            if error.kind is not Failure.TASK and not in_place:
                raise
            failures.append(error)
            continue
        if found[-1][1].solved:
            return found[-1]
    if not found:
        raise failures[0]
    return found[0]


async def _solve_at(
    backend: Backend, starts: StartTrees, task: Task, image: str, *, in_place: bool
) -> tuple[Task, Verdict, str]:
    """Judge the reference solution in one place, as a watched task if that can be."""
    watched = with_record(task, REFERENCE, in_place=in_place)
    found: tuple[Task, Verdict, str] | None = None
    try:
        found = watched, *await solve(backend, starts, watched, image)
        if found[1].solved or found[1].metrics.get(WRITTEN, 0.0) < 1 or lists_tests(task):
            return found
        record = merged([found[1].evidence])
        if _watched(task, [found[1]], record):
            # test.sh rewards it although it fails some tests: those that it passes are asked for.
            passing = with_record(task, record, watched=True, in_place=in_place)
            again = passing, *await solve(backend, starts, passing, image)
            if again[1].solved:
                return again
    except InfraError as error:
        if error.kind is not Failure.TASK:
            raise
    # Its tests may be the agent's own, or run where nothing is seen: then test.sh is believed.
    alone = with_record(task, "", watched=False, in_place=in_place)
    believed, said = await solve(backend, starts, alone, image)
    return (alone, believed, said) if believed.solved or found is None else found


async def _image_mb(backend: Backend, image: str) -> float:
    """Return the size of an image; 0 on a backend without a Docker daemon."""
    return round(await backend.image_mb(image), 1) if isinstance(backend, DockerBackend) else 0.0


def _stands(result: CheckResult, task: Task, repeats: int) -> bool:
    sound = result.ok and len(result.reference) >= repeats
    return result.digest == task.digest and (sound or result.flaky)
