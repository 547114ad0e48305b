"""What the suites of cheats and of odd solutions share: judging what a script made."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence

import pytest
import shared_backend
from planted_modules import judge_modules
from verifier_samples import verdict_after

from envs.checking.manifest import with_record
from envs.judging.record import REFERENCE
from envs.judging.results import WRITTEN
from envs.judging.start_trees import StartTrees
from envs.judging.watched_tasks import is_watched
from envs.types import Task, Verdict
from sandboxes.docker import DockerBackend

AT_ONCE = 4
docker_backend = shared_backend.docker_backend
pytest_collection_modifyitems = shared_backend.pytest_collection_modifyitems


async def attempt(backend: DockerBackend, starts: StartTrees, task: Task, script: str) -> Verdict:
    """The verdict on what a shell script, run as an agent would, makes of a task whose reference was seen to work."""
    if task.hidden.watched is None:
        task = with_record(task, task.hidden.record, watched=is_watched(task))
    image = await backend.ensure_image(task.image, task.context)
    return await verdict_after(backend, image, task, ["bash", "-c", script], starts)


async def checked(backend: DockerBackend, starts: StartTrees, task: Task, script: str) -> Verdict:
    """The verdict on honest work, after `tasks check` has seen it as a reference (`envs.checking.check`)."""
    verdict = await attempt(backend, starts, with_record(task, REFERENCE, watched=is_watched(task)), script)
    if not verdict.solved and verdict.metrics.get(WRITTEN, 0.0) >= 1:
        verdict = await attempt(backend, starts, with_record(task, "", watched=False), script)
    return verdict


async def attempts(backend: DockerBackend, tasks: Sequence[tuple[Task, str]], *, honest=False) -> list[Verdict]:
    """The verdict on each script for its task, a few at a time. honest: as `tasks check` judges it."""
    turn, starts, judge = asyncio.Semaphore(AT_ONCE), StartTrees(backend), checked if honest else attempt

    async def one(task: Task, script: str) -> Verdict:
        async with turn:
            return await judge(backend, starts, task, script)

    return await asyncio.gather(*(one(task, script) for task, script in tasks))


@pytest.fixture
def judge_scripts(docker_backend):
    """Judges scripts on the sample task of a format."""

    async def run(task: Task, scripts: Mapping[str, str]) -> dict[str, Verdict]:
        found = await attempts(docker_backend, [(task, script) for script in scripts.values()])
        return dict(zip(scripts, found, strict=True))

    return run


@pytest.fixture
def judge_tasks(docker_backend):
    """Judges what scripts make of tasks, each of its own."""
    return functools.partial(attempts, docker_backend)


@pytest.fixture
def judged(tmp_path):
    """Judges modules of tests with a solution as they are in the sandbox, but for the sandbox."""

    return functools.partial(judge_modules, tmp_path)
