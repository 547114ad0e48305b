"""Plant bugs in a project and keep those found by its tests.

One warm sandbox per project runs everything: the unbroken suite several times (tests with unstable
results are dropped), then one mutant after the other, each written into its module and taken
back. A mutant is kept when it breaks at least one test and at most 40 % of them, and every other test
is still seen to pass. The reference of the first kept mutant is judged like an agent's work: tests
not seen to pass by the verifier (it runs them as another user, from memory) are left out. Kept bugs are
also combined, two or three in one task, and run once more.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

from envs.checking.check import solve
from envs.judging.archives import pack_directory
from envs.judging.start_trees import StartTrees
from envs.tasks.forge.emit import Bug, ForgedTask, copy, emit
from envs.tasks.forge.instruction import write_instruction
from envs.tasks.forge.mutations import Mutation, apply_mutations, find_mutations, is_bug
from envs.tasks.forge.project import Project, fetch_project
from envs.tasks.forge.suite import WORKDIR, Outcome, run_suite
from envs.tasks.harbor import load_task
from envs.types import BadTask, InfraError, TestStatus
from sandboxes.base import Backend, Limits, Sandbox, SandboxDied, SandboxSpec, SandboxTimeout
from sandboxes.docker.images.base_image import BASE_IMAGE
from sandboxes.shielding import run_concurrently

logger = logging.getLogger(__name__)

GOLD_RUNS = 3
MAX_BROKEN = 0.4
MAX_SUITE_S = 60.0
_PER_FUNCTION = 3
_COMBINED = 3
"""Every third task holds several bugs."""


@dataclass(slots=True)
class Tally:
    """A project's mutants, counted by outcome: "kept", or the reason against it."""

    project: str
    tests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Baseline:
    gold: frozenset[str]
    files: Mapping[str, str]
    modules: tuple[str, ...]
    duration_s: float


async def forge(
    backend: Backend,
    sources: Sequence[str],
    out: Path,
    *,
    cache: Path,
    per_package: int = 30,
    limit: int | None = None,
    seed: int = 0,
    concurrency: int = 2,
    on_task: Callable[[Path], None] | None = None,
    on_mutant: Callable[[str], None] | None = None,
) -> list[Tally]:
    """Make up to `per_package` tasks from each source, `limit` in all, below `out`; tallies as `sources`.

    sources: directories, or packages as for `fetch_project`. An unusable source gives a tally with
    its problem, and so does one with a dead sandbox; an unreachable Docker daemon ends everything.
    """
    turn = asyncio.Semaphore(concurrency)
    left = itertools.count() if limit is None else iter(range(limit))

    async def one(source: str) -> Tally:
        tally = Tally(source)
        async with turn:
            try:
                project = await fetch_project(source, cache)
                async with aclosing(_forge_project(backend, project, per_package, seed, tally, on_mutant)) as tasks:
                    async for task in tasks:
                        if next(left, None) is None:
                            break
                        path = await asyncio.to_thread(emit, task, write_instruction(task, seed), out)
                        if on_task is not None:
                            on_task(path)
            except (BadTask, InfraError, SandboxDied, SandboxTimeout) as error:  # of this source alone
                tally.problem = str(error)
        return tally

    return await run_concurrently(one(source) for source in sources)


async def _forge_project(
    backend: Backend,
    project: Project,
    wanted: int,
    seed: int,
    tally: Tally,
    on_mutant: Callable[[str], None] | None,
) -> AsyncGenerator[ForgedTask, None]:
    spec = SandboxSpec(
        await backend.ensure_image(BASE_IMAGE), workdir="/", limits=Limits(memory_mb=1024), switch_users=True
    )
    async with backend.open(spec) as sandbox:
        baseline = await _prepare(sandbox, project)
        tally.tests = len(baseline.gold)
        chance = random.Random(f"{seed} {project.name}")
        kept: list[ForgedTask] = []
        made: set[str] = set()
        singles = _single_bugs(project, chance)
        made_singles: list[ForgedTask] = []
        judged = False
        while len(kept) < wanted:
            combine = len(kept) % _COMBINED == _COMBINED - 1 and len(made_singles) >= 2
            bugs = _combine_bugs(made_singles, chance) if combine else next(singles, None)
            if bugs is None and not combine:
                return
            outcome: str | ForgedTask = "nothing to combine"
            if bugs is not None:
                outcome = await _try_bugs(sandbox, project, baseline, bugs)
                if isinstance(outcome, ForgedTask) and not judged:
                    judged = True
                    unseen = await _tests_without_pass(backend, outcome)
                    baseline = replace(baseline, gold=baseline.gold - unseen)
                    tally.tests = len(baseline.gold)
                    outcome = await _try_bugs(sandbox, project, baseline, bugs) if unseen else outcome
            what = "kept" if isinstance(outcome, ForgedTask) else outcome
            tally.outcomes[what] += 1
            if on_mutant is not None:
                on_mutant(f"{project.name}: {what}")
            if isinstance(outcome, ForgedTask) and outcome.id not in made:
                made.add(outcome.id)
                kept.append(outcome)
                if not combine:
                    made_singles.append(outcome)
                yield outcome
            elif combine:  # goes on with single bugs, so that it can't try the same for ever
                made_singles = made_singles[1:]


async def _tests_without_pass(backend: Backend, task: ForgedTask) -> frozenset[str]:
    """Return the tests not seen to pass by the verifier without the bugs. Raises BadTask when it sees none."""
    with tempfile.TemporaryDirectory() as folder:
        made = load_task(await asyncio.to_thread(emit, task, write_instruction(task, 0), Path(folder)))
        image = await backend.ensure_image(made.image, made.context)
        verdict, _ = await solve(backend, StartTrees(backend), made, image)
    unseen = frozenset(name for name, status in verdict.tests.items() if status is not TestStatus.PASSED)
    if not verdict.tests or len(unseen) == len(verdict.tests):
        raise BadTask(f"{task.project.name}: the verifier sees none of its tests pass: {verdict.explanation}")
    if unseen:
        logger.info(
            "%s: %d tests don't pass before the verifier: %s", task.project.name, len(unseen), sorted(unseen)[:5]
        )
    return unseen


async def _prepare(sandbox: Sandbox, project: Project) -> _Baseline:
    """Put the project in place and run its suite. Raises BadTask when it can't serve."""
    found = await sandbox.exec(["/usr/bin/python3", "-I", "-c", _IMPORTABLE, *project.top_level], cwd="/")
    if not found.ok:
        raise BadTask(f"{project.name}: {found.output.strip()} is part of the image already; its tests would find that")
    await sandbox.upload(await asyncio.to_thread(_archive, project), WORKDIR)
    first = await run_suite(sandbox, project.import_path, project.tests, MAX_SUITE_S)
    if first.timed_out:
        raise BadTask(f"{project.name}: its tests take more than {MAX_SUITE_S:.0f} s")
    gold = first.passed
    modules = tuple(sorted({first.files[name] for name in gold}))
    if not gold or "" in modules:
        why = next(iter(first.messages.values()), "no test was collected").strip().splitlines()[-1]
        raise BadTask(f"{project.name}: no test passes in {BASE_IMAGE}, which has pytest and nothing else ({why})")
    durations = [first.duration_s]
    for _ in range(GOLD_RUNS - 1):
        again = await run_suite(sandbox, project.import_path, modules, MAX_SUITE_S)
        gold &= again.passed
        durations.append(again.duration_s)
    logger.info("%s: %d tests pass %d times, %.1f s", project.name, len(gold), GOLD_RUNS, durations[-1])
    return _Baseline(gold, first.files, modules, max(durations))


async def _try_bugs(sandbox: Sandbox, project: Project, baseline: _Baseline, bugs: tuple[Bug, ...]) -> ForgedTask | str:
    """Run the suite with bugs. Returns the task, or why they can't be used."""
    for bug in bugs:
        await sandbox.write_file(f"{WORKDIR}/{bug.module}", bug.mutated.encode())
    try:
        seen = await run_suite(sandbox, project.import_path, baseline.modules, 4 * baseline.duration_s + 5)
        problem = _problem(baseline, seen)
        if problem is None:  # once more: what differs between runs is noise, not the bug
            again = await run_suite(sandbox, project.import_path, baseline.modules, 4 * baseline.duration_s + 5)
            problem = "unsteady" if again.failed != seen.failed else None
    finally:
        for bug in bugs:
            await sandbox.write_file(f"{WORKDIR}/{bug.module}", bug.original.encode())
    if problem is not None:
        return problem
    broken = baseline.gold & seen.failed
    return ForgedTask(
        project,
        bugs,
        {name: seen.messages[name] for name in broken},
        tuple(sorted(baseline.gold - broken)),
        baseline.files,
        baseline.duration_s,
    )


def _problem(baseline: _Baseline, seen: Outcome) -> str | None:
    if seen.timed_out:
        return "timeout"
    if baseline.gold - seen.passed - seen.failed:
        return "tests not seen"
    broken = len(baseline.gold & seen.failed)
    if not broken:
        return "breaks nothing"
    return "breaks too much" if broken > MAX_BROKEN * len(baseline.gold) else None


def _single_bugs(project: Project, chance: random.Random) -> Iterator[tuple[Bug, ...]]:
    """Yield bugs in random order, at most a few in each function."""
    found: list[tuple[str, str, Mutation]] = []
    for module in project.modules:
        try:
            text = (project.root / module).read_bytes().decode()
        except UnicodeDecodeError:
            continue
        found += [(module, text, mutation) for mutation in find_mutations(text)]
    chance.shuffle(found)
    used: Counter[tuple[str, str]] = Counter()
    for module, text, mutation in found:
        if used[module, mutation.function] < _PER_FUNCTION and is_bug(text, mutation):
            used[module, mutation.function] += 1
            yield (Bug(module, text, apply_mutations(text, [mutation]), (mutation,)),)


def _combine_bugs(singles: Sequence[ForgedTask], chance: random.Random) -> tuple[Bug, ...] | None:
    """Return two or three kept bugs in one task, None when they overlap."""
    chosen = chance.sample(singles, min(len(singles), chance.choice((2, 2, 3))))
    by_module: dict[str, list[Bug]] = {}
    for task in chosen:
        for bug in task.bugs:
            by_module.setdefault(bug.module, []).append(bug)
    combined = []
    for module, bugs in sorted(by_module.items()):
        mutations = tuple(mutation for bug in bugs for mutation in bug.mutations)
        try:
            mutated = apply_mutations(bugs[0].original, mutations)
        except ValueError:
            return None
        combined.append(Bug(module, bugs[0].original, mutated, mutations))
    return tuple(combined)


def _archive(project: Project) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for file in project.files:
            copy(project.root / file, Path(folder) / file)
        return pack_directory(Path(folder))


_IMPORTABLE = """\
import sys
from importlib.util import find_spec
found = [name for name in sys.argv[1:] if find_spec(name)]
sys.exit(" ".join(found) or 0)
"""
