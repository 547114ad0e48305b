"""Copies of the tested package that the image has beside the source tree."""

import pytest

from envs.judging.check import check_tasks
from envs.tasks.harbor import load_task


@pytest.mark.docker
async def test_a_check_names_the_copy_that_was_tested_in_place_of_the_tree(docker_backend, tmp_path):
    directory = tmp_path / "copied"
    for folder in ("environment", "tests", "solution"):
        (directory / folder).mkdir(parents=True)
    (directory / "task.toml").write_text("")
    (directory / "instruction.md").write_text("Make it 2.")
    (directory / "environment/Dockerfile").write_text(
        "FROM x\nWORKDIR /app\nRUN mkdir src src/thing && echo 'n = 1' > src/thing/__init__.py "
        "&& cd /usr/lib/python3/dist-packages && mkdir thing && echo 'n = 2' > thing/__init__.py\n"
    )
    (directory / "tests/test_it.py").write_text("import thing\n\n\ndef test_it():\n    assert thing.n == 2\n")
    (directory / "tests/test.sh").write_text(
        "cd /logs/verifier; python3 -m pytest /tests/test_it.py && echo 1 > reward.txt || echo 0 > reward.txt\n"
    )
    (directory / "solution/solve.sh").write_text("echo 'n = 2' > src/thing/__init__.py")
    (result,) = await check_tasks(docker_backend, [load_task(directory)])
    assert not result.ok
    assert "own copy of thing at /usr/lib/python3/dist-packages/thing/__init__.py" in result.problem
