"""Tests that the reference brings along: nobody else has to write the same."""

import pytest
from task_formats import write
from test_check import make_task
from tree_samples import archive, member

from envs.checking.check import check_tasks
from envs.checking.manifest import usable
from envs.judging.changes import Changes
from envs.judging.verifier import judge
from envs.tasks.harbor import load_task

pytestmark = pytest.mark.docker

HIDDEN = "def test_done():\n    assert open('/app/done').read() == '1\\n'\n"
GIVEN = "def test_given():\n    assert 2 * 3 == 6\n"
OWN = "def test_mine():\n    assert 1 + 1 == 2\n"
UNITTEST = (
    "import unittest\n\nclass Mine(unittest.TestCase):\n    def test_mine(self):\n        self.assertEqual(1 + 1, 2)\n"
)


def adding(files: dict[str, str], changed: tuple[str, ...] = ()) -> Changes:
    """An agent's changes: these files."""
    packed = archive(*(member(name, text.encode()) for name, text in files.items()))
    return Changes(packed, added=tuple(name for name in files if name not in changed), changed=changed)


@pytest.mark.parametrize(
    ("run", "hidden", "solve", "watched"),
    [
        ("pytest -q /tests tests", HIDDEN, {"tests/test_mine.py": OWN}, True),
        ("pytest -q tests/test_*mine.py", None, {"tests/test_mine.py": OWN}, False),
        ("python3 -m unittest discover -s tests -p '*mine.py'", None, {"tests/test_mine.py": UNITTEST}, False),
        ("pytest -q tests", None, {"tests/test_given.py": GIVEN + OWN}, False),
    ],
    ids=["beside hidden ones", "alone", "of unittest", "in a given file"],
)
async def test_tests_that_the_reference_brings_are_asked_of_nobody(
    docker_backend, tmp_path, run, hidden, solve, watched
):
    copies = "".join(f"cat > {name} <<'EOF'\n{text}EOF\n" for name, text in solve.items())
    directory = make_task(tmp_path, "task", solve=f"echo 1 > done\n{copies}", test=f"[ -e done ] && {run} >&2")
    image = "FROM atropos-agent/base:debian12\nWORKDIR /app\nCOPY . /app\n"
    write(directory, {"environment/Dockerfile": image, "environment/tests/test_given.py": GIVEN})
    write(directory / "tests", {"test_hidden.py": hidden} if hidden else {})
    (result,) = await check_tasks(docker_backend, [load_task(directory)])
    assert (result.problem, result.watched) == (None, watched)
    (task,) = usable([load_task(directory)], {result.task_id: result}, "here")
    image = await docker_backend.ensure_image(task.image, task.context)

    async def reward(texts: dict[str, str]) -> float:
        changed = tuple(name for name in texts if name == "tests/test_given.py")
        return (await judge(docker_backend, task, image, adding({"done": "1\n", **texts}, changed))).reward

    others = {name.replace("mine", "its_mine"): text.replace("test_mine", "test_other") for name, text in solve.items()}
    assert await reward(others) == 1
    assert await reward({name: text.replace("1 + 1", "1 + 2") for name, text in others.items()}) == 0
