"""Tasks whose solutions need root's usual rights, in the agent's sandbox and in the verifier's."""

import pytest
from backends import STARTERS, backend_of
from chores import CHORES
from harbor_samples import make_task
from turns import one_of

from envs.checking.check import check_tasks
from envs.tasks.harbor import load_task

pytestmark = pytest.mark.timeout(900)

SOLVE = """
cat >{number}.sh <<'THE END'
{command}
THE END
mkdir first-{number} && (cd first-{number} && bash ../{number}.sh) >report-{number}
"""
TESTS = """
import subprocess, tempfile, unittest
from pathlib import Path


class State(unittest.TestCase):
    def done(self, number, printed):
        self.assertTrue(Path(f"/app/report-{number}").read_text().endswith(printed))

    def done_again(self, number, printed):
        with tempfile.TemporaryDirectory(dir="/app") as place:
            ran = subprocess.run(["bash", f"/app/{number}.sh"], cwd=place, capture_output=True, text=True)
        self.assertTrue(ran.stdout.endswith(printed), ran.stdout + ran.stderr)
"""
TEST = """
    def test_{name}(self):
        self.done({number}, {printed!r})

    def test_{name}_can_be_done_again(self):
        self.done_again({number}, {printed!r})
"""
TEST_SH = """#!/bin/bash
cd /tests && python3 -m unittest -q test_state && reward=1 || reward=0
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
"""


def folder_of(root, base_image):
    """Write the task of all chores, one after the other."""
    solve, tests = "#!/bin/bash\n", TESTS
    for number, (chore, (command, printed)) in enumerate(CHORES.items()):
        solve += SOLVE.format(number=number, command=command)
        tests += TEST.format(name=chore.replace(" ", "_").replace("'", ""), number=number, printed=printed)
    folder = make_task(root, '[environment]\nnetwork_mode = "no-network"\n', "chores")
    (folder / "environment/Dockerfile").write_text(f"FROM {base_image}\nWORKDIR /app\n")
    (folder / "solution/solve.sh").write_text(solve)
    (folder / "tests/test_state.py").write_text(tests)
    (folder / "tests/test.sh").write_text(TEST_SH)
    return folder


@pytest.mark.parametrize("starter", one_of(STARTERS))  # tests/sandboxes/test_roots_rights.py has both
async def test_the_references_of_20_chores_are_rewarded_and_nothing_is_not(starter, base_image, tmp_path):
    assert len(CHORES) == 20
    async with await backend_of(starter) as backend:
        (result,) = await check_tasks(backend, [load_task(folder_of(tmp_path, base_image))])
    assert result.problem is None
    assert (result.reference, result.nothing) == ((1.0,), (0.0,))
