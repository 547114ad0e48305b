"""What the suites of cheats and of odd solutions share: judging what a script made."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import pytest
import shared_backend
from clean_tree import a_few_at_a_time
from planted_modules import judge_modules
from verifier_samples import verdict_after

from envs.checking.manifest import with_record
from envs.judging.record import REFERENCE
from envs.judging.results import WRITTEN
from envs.judging.start_trees import StartTrees
from envs.judging.watched_tasks import is_watched
from envs.types import Task, Verdict
from sandboxes.docker import DockerBackend

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


@pytest.fixture
def judge_all(docker_backend):
    """Judges what scripts make of tasks, by their names, a few at a time."""

    async def run(samples: Mapping[str, tuple[Task, str]], *, honest=False) -> dict[str, Verdict]:
        """honest: as `tasks check` judges it."""
        starts, judge = StartTrees(docker_backend), checked if honest else attempt
        found = await a_few_at_a_time(judge(docker_backend, starts, *each) for each in samples.values())
        return dict(zip(samples, found, strict=True))

    return run


@pytest.fixture
def judged(tmp_path):
    """Judges modules of tests with a solution as they are in the sandbox, but for the sandbox."""

    return functools.partial(judge_modules, tmp_path)
