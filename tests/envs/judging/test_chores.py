"""Tasks whose solutions need root's usual rights, in the agent's sandbox and in the verifier's, by both starters."""

import json

import pytest
from backends import STARTERS, backend_of
from chores import CHORES
from harbor_samples import make_task

from envs.judging.check import check_tasks
from envs.tasks.harbor import load_task

pytestmark = pytest.mark.timeout(900)

SOLVE = """#!/bin/bash
cat >chore.sh <<'THE END'
{command}
THE END
mkdir first && (cd first && bash ../chore.sh) >report
"""
TESTS = """
import json, subprocess, tempfile, unittest
from pathlib import Path

PRINTED = json.loads({printed!r})


class State(unittest.TestCase):
    def test_it_was_done(self):
        self.assertTrue(Path("/app/report").read_text().endswith(PRINTED))

    def test_it_can_be_done_again(self):
        with tempfile.TemporaryDirectory(dir="/app") as place:
            ran = subprocess.run(["bash", "/app/chore.sh"], cwd=place, capture_output=True, text=True)
        self.assertTrue(ran.stdout.endswith(PRINTED), ran.stdout + ran.stderr)
"""
TEST = """#!/bin/bash
cd /tests && python3 -m unittest -q test_state && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
"""


def folder_of(chore, root, base_image):
    """Write the task of a chore."""
    command, printed = CHORES[chore]
    folder = make_task(root, '[environment]\nnetwork_mode = "no-network"\n', chore.replace(" ", "-").replace("'", ""))
    (folder / "instruction.md").write_text(f"Write /app/chore.sh: {chore}. Keep its output in /app/report.\n")
    (folder / "environment/Dockerfile").write_text(f"FROM {base_image}\nWORKDIR /app\n")
    (folder / "solution/solve.sh").write_text(SOLVE.format(command=command))
    (folder / "tests/test_state.py").write_text(TESTS.format(printed=json.dumps(printed)))
    (folder / "tests/test.sh").write_text(TEST)
    return folder


@pytest.mark.long(90)
@pytest.mark.parametrize("starter", STARTERS)
async def test_the_references_of_20_chores_are_rewarded_and_nothing_is_not(starter, base_image, tmp_path):
    assert len(CHORES) == 20
    tasks = [load_task(folder_of(chore, tmp_path, base_image)) for chore in CHORES]
    async with await backend_of(starter) as backend:
        results = await check_tasks(backend, tasks)
    assert {result.task_id: result.problem for result in results if not result.ok} == {}
    assert {(result.reference, result.nothing) for result in results} == {((1.0,), (0.0,))}
