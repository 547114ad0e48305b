"""What a test.sh may do: each construct behaves under the verifier as in a plain container of the same image."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from constructs import CONSTRUCTS, COVERAGE, CTRF, DOCKERFILE, FAKES, TESTS, WORK
from task_formats import write
from turns import turn

from envs.judging.archives import pack_directory
from envs.types import TESTS_UNSEEN, Hidden, Task
from sandboxes.base import SandboxSpec

TRIED = list(CONSTRUCTS)[turn(4) :: 4]
"""Each run tries a quarter; `-m slow` tries the others."""
RUNS_TESTS = re.compile(r"/tests/(test_|run)|test_cases|make|tox|nox|ctest")


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    fakes = {f"fakes/{name}": f"#!/bin/bash\n{text}" for name, text in FAKES.items()}
    files = {"Dockerfile": DOCKERFILE, "coverage.py": COVERAGE, "ctrf.py": CTRF, **fakes}
    return write(tmp_path_factory.mktemp("image"), files)


def told(output: str) -> str:
    """What was printed, without what differs in each run."""
    output = re.sub(r"\d+\.\d+ ?s(econds)?\b", "<time>", output)
    return re.sub(r"=+", "=", output)


async def plainly(backend, image, tests) -> tuple[str, int, float]:
    """Run test.sh in a plain container: (what it printed, its exit status, its reward)."""
    async with backend.open(SandboxSpec(image, workdir="/app", switch_users=True)) as sandbox:
        await sandbox.exec(["bash", "-c", WORK])
        await sandbox.exec("mkdir -p /tests /logs/verifier", user="root")
        await sandbox.upload(await asyncio.to_thread(pack_directory, tests), "/tests")
        ran = await sandbox.exec(["bash", "/tests/test.sh"], user="root", timeout=60.0)
        left = await sandbox.exec("cat /logs/verifier/reward.json || cat /logs/verifier/reward.txt", user="root")
    reward = json.loads(left.output.splitlines()[-1])
    return told(ran.output), ran.exit_code, reward["reward"] if isinstance(reward, dict) else float(reward)


@pytest.mark.docker
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in TRIED else pytest.mark.slow) for name in CONSTRUCTS]
)
async def test_a_construct_behaves_as_in_a_plain_container(docker_backend, judge_tasks, image_folder, tmp_path, name):
    script = CONSTRUCTS[name]
    files = TESTS if RUNS_TESTS.search(script) else {each: TESTS[each] for each in ("lib.sh", "config.json")}
    tests = write(tmp_path / "tests", {**files, "test.sh": script})
    image = await docker_backend.ensure_image(None, image_folder)
    task = Task("construct", "Do it.", Hidden(tests, timeout_s=60.0), context=image_folder, workdir="/app")
    (verdict,), plain = await asyncio.gather(judge_tasks([(task, WORK)]), plainly(docker_backend, image, tests))
    judged = told(verdict.output), int(verdict.metrics["verifier_exit_code"]), verdict.reward
    assert judged == plain
    assert (TESTS_UNSEEN in verdict.metrics) is (files is not TESTS)
