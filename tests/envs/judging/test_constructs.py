"""What a test.sh may do: each construct behaves under the verifier as in a plain container of the same image."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from clean_tree import a_few_at_a_time
from constructs import (
    CONSTRUCTS,
    COVERAGE,
    CTRF,
    DOCKERFILE,
    FAKES,
    REAL,
    REAL_DOCKERFILE,
    REAL_TESTS,
    REAL_WORK,
    TESTS,
    WORK,
)
from task_formats import write
from turns import share, share_or_all

from envs.judging.archives import pack_directory
from envs.judging.changes import collect_changes
from envs.judging.start_trees import StartTrees
from envs.judging.verifier import judge
from envs.types import TESTS_UNSEEN, Hidden, Task
from sandboxes.base import SandboxSpec

RUNS_TESTS = re.compile(r"/tests/(test_|run)|test_cases|\bmake\b|\btox\b|\bnox\b")


def image_folder(root: Path) -> Path:
    fakes = {f"fakes/{name}": f"#!/bin/bash\n{text}" for name, text in FAKES.items()}
    files = {"Dockerfile": DOCKERFILE, "coverage.py": COVERAGE, "ctrf.py": CTRF, **fakes}
    return write(root / "image", files)


def told(output: str) -> str:
    """What was printed, without what differs in each run."""
    output = re.sub(r" *\d+\.\d+ ?s(ec(onds)?)?\b", "<time>", output)
    return re.sub(r"=+", "=", output)


async def plainly(backend, image, tests, work) -> tuple[str, int, float]:
    """Run test.sh in a plain container: (what it printed, its exit status, its reward)."""
    async with backend.open(SandboxSpec(image, workdir="/app", switch_users=True)) as sandbox:
        await sandbox.exec(["bash", "-c", work])
        await sandbox.exec("mkdir -p /tests /logs/verifier", user="root")
        await sandbox.upload(await asyncio.to_thread(pack_directory, tests), "/tests")
        ran = await sandbox.exec(["bash", "/tests/test.sh"], user="root", timeout=120.0)
        left = await sandbox.exec("cat /logs/verifier/reward.json || cat /logs/verifier/reward.txt", user="root")
    reward = json.loads(left.output.splitlines()[-1])
    return told(ran.output), ran.exit_code, reward["reward"] if isinstance(reward, dict) else float(reward)


async def differing(
    backend, root: Path, folder: Path, constructs: Mapping[str, str], files_for_tests=TESTS, work=WORK
) -> dict[str, object]:
    """How constructs end under the verifier, and plainly, if it is not the same. All judge the same work."""
    image = await backend.ensure_image(None, folder)
    start = await StartTrees(backend).get(Task("work", "Do it.", Hidden(), workdir="/app"), image)
    async with backend.open(SandboxSpec(image, workdir="/app")) as sandbox:
        await sandbox.exec(["bash", "-c", work])
        changes = await collect_changes(sandbox, start, Hidden())

    async def one(number: int, name: str) -> tuple[object, object]:
        watched = RUNS_TESTS.search(constructs[name]) is not None
        unseen = {name: text for name, text in files_for_tests.items() if not name.endswith(".py")}
        files = files_for_tests if watched else unseen
        tests = write(root / str(number), {**files, "test.sh": constructs[name]})
        task = Task("construct", "Do it.", Hidden(tests, timeout_s=120.0, watched=watched), workdir="/app")
        verdict = await judge(backend, task, image, changes)
        plain = await plainly(backend, image, tests, work)
        judged = told(verdict.output), int(verdict.metrics["verifier_exit_code"]), verdict.reward
        return (*judged, TESTS_UNSEEN not in verdict.metrics), (*plain, watched)

    pairs = await a_few_at_a_time(one(*each) for each in enumerate(constructs))
    found = dict(zip(constructs, pairs, strict=True))
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


@pytest.mark.docker
@share_or_all(5)
async def test_constructs_behave_as_in_a_plain_container(docker_backend, tmp_path, most):
    assert await differing(docker_backend, tmp_path, image_folder(tmp_path), share(CONSTRUCTS, most)) == {}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(3600)
async def test_real_programs_behave_as_in_a_plain_container(docker_backend, tmp_path):
    folder = write(tmp_path / "image", {"Dockerfile": REAL_DOCKERFILE})
    assert await differing(docker_backend, tmp_path, folder, REAL, REAL_TESTS, REAL_WORK) == {}
