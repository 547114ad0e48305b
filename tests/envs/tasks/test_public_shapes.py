"""Tasks as they are published load and are usable as they stand."""

import pytest
from public_shapes import CONTENTS, SHAPES, make_all

from envs.checking.check import check_tasks
from envs.tasks.harbor import load_tasks


def test_tasks_in_public_shapes_load(tmp_path):
    names = make_all(tmp_path)
    tasks = load_tasks(tmp_path)
    assert len(tasks) == len(names) >= 40
    assert all("canary" not in task.instruction for task in tasks)
    graded = {task.id: task.hidden.graded for task in tasks}
    assert graded["server-config.terminal-bench-2"] == ("/etc/server/server.conf", "/var/www/site")
    assert graded["two-commits.harbor-ctrf"] == ("/app", ".git")
    assert graded["csv-to-json.separate-copy"] == ("/logs/artifacts", "/app/people.json")


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", [shape.__name__.replace("_", "-") for shape in SHAPES])
async def test_tasks_in_public_shapes_can_be_used(docker_backend, tmp_path, shape):
    make_all(tmp_path)
    tasks = [task for task in load_tasks(tmp_path) if task.id.endswith(f".{shape}")]
    results = await check_tasks(docker_backend, tasks, concurrency=2)
    assert len(results) == len(CONTENTS)
    assert {result.task_id: result.problem for result in results if not result.ok} == {}
